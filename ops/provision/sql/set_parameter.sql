ALTER ROLE {login} SET {parameter} = {value}
