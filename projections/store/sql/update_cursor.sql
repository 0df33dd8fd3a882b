-- Compare and set: no row changes when the Cursor is not where the transaction found it.
UPDATE projection_cursor SET incarnation = :incarnation, sequence = :sequence, chain_hash = :chain_hash
WHERE group_id = :group_id AND sequence = :sequence_before AND chain_hash = :chain_hash_before
