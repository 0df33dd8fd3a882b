-- Nobody else decides before this transaction ends; its process reads and goes on all the same.
LOCK TABLE projection_decision IN SHARE ROW EXCLUSIVE MODE
