INSERT INTO projection_counter (name, amount) VALUES (:name, :amount)
ON CONFLICT (name) DO UPDATE SET amount = projection_counter.amount + excluded.amount
