SELECT name, amount FROM projection_counter ORDER BY name
