-- First statement of a transaction whose reads must agree with each other.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY
