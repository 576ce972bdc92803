-- name: columns
id, coalesce(partition_id, 0), coalesce(transaction_id::text::bigint, 0), coalesce("offset", 0), index, coalesce(uuid::text, ''), coalesce(origin, ''), payload, reason, created_at

-- name: held
(partition_id IS NULL OR partition_id IN (SELECT partition_id FROM badged.partitions))

-- name: list dead letters
-- Omits the letters that are being copied to this database with a moving partition. Letters of
-- brokers have no partition.
SELECT {columns}
FROM (SELECT *, sum(coalesce(octet_length(payload), 0) + octet_length(reason)) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM (SELECT * FROM badged.dead_letters WHERE id > $1 AND {held} ORDER BY id LIMIT $2) AS page) AS page
WHERE coalesce(before, 0) < $3
ORDER BY id

-- name: find a dead letter
SELECT {columns} FROM badged.dead_letters WHERE id = $1 AND {held}

-- name: remove a dead letter
-- Keeps the letter's place in the log (row and index) in settled_letters, so that replays skip
-- the event.
WITH removed AS (
    DELETE FROM badged.dead_letters WHERE id = $1 AND {held} RETURNING *
), settled AS (
    INSERT INTO badged.settled_letters (partition_id, transaction_id, "offset", index, user_ids)
    SELECT partition_id, transaction_id, "offset", index, user_ids FROM removed WHERE origin IS NULL
    ON CONFLICT DO NOTHING -- other users of the event refused it, and were settled
)
SELECT {columns} FROM removed
