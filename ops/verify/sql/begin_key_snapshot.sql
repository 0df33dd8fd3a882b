-- First statement of the transaction in which the registry is compared with its history.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY
