-- name: create a position
INSERT INTO badged.ingest_positions (broker, stream, partition, incarnation) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING

-- name: read a position
-- And how many other streams had its name.
SELECT position, (SELECT count(*) FROM badged.ingest_positions AS o
                  WHERE (o.broker, o.stream, o.partition) = (p.broker, p.stream, p.partition) AND o.incarnation <> p.incarnation)
FROM badged.ingest_positions AS p
WHERE (broker, stream, partition, incarnation) = ($1, $2, $3, $4)

-- name: move the position
-- From $5 to $6, behind $7 more messages. It fails if the position is elsewhere: another
-- process has read on.
WITH moved AS (
    UPDATE badged.ingest_positions
    SET position = $6, messages = messages + $7, read_at = clock_timestamp()
    WHERE (broker, stream, partition, incarnation) = ($1, $2, $3, $4) AND position = $5
    RETURNING 1
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM moved) THEN badged.refuse_batch('BD005') END

-- name: bury messages
INSERT INTO badged.dead_letters (origin, payload, reason)
SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[])
