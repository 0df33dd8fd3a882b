-- The write lock is taken at once, so that what the transaction reads cannot change before it writes.
BEGIN IMMEDIATE
