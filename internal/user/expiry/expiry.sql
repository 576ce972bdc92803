-- Statements of the expiry sweep. pNN stands for a partition.

-- name: list the categories
-- Categories of conversations and rooms. Jumps in the index from one category to the next, so
-- the time depends on the number of categories and not of rows.
WITH RECURSIVE step AS (
    SELECT min(category) AS category FROM badged.conversations_pNN
    UNION ALL
    SELECT (SELECT min(category) FROM badged.conversations_pNN AS c WHERE c.category > step.category)
    FROM step WHERE step.category IS NOT NULL
), room_step AS (
    SELECT min(category) AS category FROM badged.rooms_pNN
    UNION ALL
    SELECT (SELECT min(category) FROM badged.rooms_pNN AS r WHERE r.category > room_step.category)
    FROM room_step WHERE room_step.category IS NOT NULL
)
SELECT category FROM step WHERE category IS NOT NULL UNION ALL SELECT category FROM room_step WHERE category IS NOT NULL

-- name: read the progress
-- Creates the row if it does not exist. A transaction that writes old conversations deletes
-- the row, even during a sweep.
WITH first AS (
    INSERT INTO badged.expiry_progress (partition_id, category, swept_hour) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING
)
SELECT coalesce((SELECT swept_hour FROM badged.expiry_progress WHERE partition_id = $1 AND category = $2), 0)

-- name: store the progress
UPDATE badged.expiry_progress SET swept_hour = $4
WHERE partition_id = $1 AND category = $2 AND swept_hour = $3

-- name: find levels to end
-- Compares with the clock of the database. clock_timestamp() may change between rows, so it
-- could not limit the index scan: levels that end later would be read too. Levels with the
-- same time are paged by conversation and user.
SELECT level_until, conversation_id, user_id, version
FROM badged.conversations_pNN
WHERE level_until <= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
  AND (level_until, conversation_id, user_id) > ($1, $2, $3)
ORDER BY level_until, conversation_id, user_id
LIMIT $4

-- name: find stale conversations
-- Pages by hour, which is the order of the index; within an hour, the users of a conversation are
-- together. The last column is the seq up to which the event reads: the seq of the last delivered
-- message, or the read position if it is ahead. A conversation that is only marked may have
-- neither: then the seq is 1. The event clears the mark, and moves no read position beyond the
-- last message.
SELECT delivered_hour, conversation_id, user_id, greatest(last_seq, read_seq, 1)
FROM badged.conversations_pNN
WHERE category = $1 AND delivered_hour < $2 AND (delivered_hour, conversation_id, user_id) > ($3, $4, $5)
  AND (unread > 0 OR marked_unread) AND joined IS NULL
ORDER BY delivered_hour, conversation_id, user_id
LIMIT $6

-- name: find stale memberships
-- First the memberships of rooms whose last message is in the searched hours. Then the
-- memberships that began, or were marked, in these hours and after the room's last message.
-- Parameters and pages are the same as in the statement above.
SELECT m.delivered_hour, m.conversation_id, m.user_id, greatest(m.last_seq, m.read_seq, m.reached_seq, 1)
FROM (
    SELECT r.delivered_hour, c.partition_id, c.conversation_id, c.user_id, r.last_seq, c.read_seq, c.reached_seq, c.marked_unread
    FROM badged.rooms_pNN AS r
    JOIN badged.conversations_pNN AS c ON c.conversation_id = r.conversation_id AND c.joined IS NOT NULL
    WHERE r.category = $1 AND r.delivered_hour < $2 AND r.delivered_hour >= $3 AND c.delivered_hour <= r.delivered_hour
    UNION ALL
    SELECT c.delivered_hour, c.partition_id, c.conversation_id, c.user_id, r.last_seq, c.read_seq, c.reached_seq, c.marked_unread
    FROM badged.conversations_pNN AS c
    JOIN badged.rooms_pNN AS r ON r.conversation_id = c.conversation_id
    WHERE c.category = $1 AND c.delivered_hour < $2 AND c.delivered_hour >= $3 AND c.joined IS NOT NULL AND c.delivered_hour > r.delivered_hour
) AS m
WHERE (m.delivered_hour, m.conversation_id, m.user_id) > ($3, $4, $5)
  AND (m.marked_unread OR m.last_seq > m.read_seq AND EXISTS (
      SELECT FROM badged.unread AS n
      WHERE n.partition_id = m.partition_id AND n.user_id = m.user_id AND n.conversation_id = m.conversation_id AND n.unread > 0))
ORDER BY m.delivered_hour, m.conversation_id, m.user_id
LIMIT $6
