-- An empty parameter asks for nothing. In the order of time; of two Events of one moment the Group and its order decide.
SELECT group_id, sequence, event_id, kind, actor_type, actor_id, occurred_at, work_item_id, conversation_id,
       cause_type, cause_id, aggregate_revision, words
FROM audit_trail_event
WHERE (occurred_at, group_id, sequence) > (:after_at, :after_group_id, :after_sequence)
  AND occurred_at >= :since AND (:until = '' OR occurred_at < :until)
  AND (:group_id = '' OR group_id = :group_id)
  AND (:actor_id = '' OR actor_id = :actor_id)
  AND (:work_item_id = '' OR work_item_id = :work_item_id)
  AND kind LIKE :kind_pattern ESCAPE '!'
  AND lower(words) LIKE :words_pattern ESCAPE '!'
ORDER BY occurred_at, group_id, sequence
LIMIT :rows_max
