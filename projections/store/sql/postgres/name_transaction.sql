UPDATE projection_writer SET last_transaction = :name
