-- name: create a position
INSERT INTO badged.ingest_positions (broker, stream, partition, incarnation) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING

-- name: read a position
-- Also counts the other incarnations of the stream: deleted streams with the same name.
SELECT position, resets, (SELECT count(*) FROM badged.ingest_positions AS o
                  WHERE (o.broker, o.stream, o.partition) = (p.broker, p.stream, p.partition) AND o.incarnation <> p.incarnation)
FROM badged.ingest_positions AS p
WHERE (broker, stream, partition, incarnation) = ($1, $2, $3, $4)

-- name: move the position
-- Moves the position from $5 to $6 and counts $7 more messages; $8 counts how often the stream
-- went back. Fails if the stored position is not $5, because another process has moved it.
WITH moved AS (
    UPDATE badged.ingest_positions
    SET position = $6, messages = messages + $7, resets = $8, read_at = clock_timestamp()
    WHERE (broker, stream, partition, incarnation) = ($1, $2, $3, $4) AND position = $5
    RETURNING 1
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM moved) THEN badged.refuse_batch('BD005') END

-- name: read places
-- Places of the partitions that the database holds.
SELECT partition_id, resets, position FROM badged.ingest_places
WHERE (broker, stream, partition, incarnation) = ($1, $2, $3, $4) AND partition_id IN (SELECT h.partition_id FROM badged.partitions AS h)

-- name: move places
-- Moves the places of the partitions $5 to position $6; $7 counts how often the stream went
-- back. $8 and $9 are the resets and positions that the caller expects, null for a partition
-- without a place. Fails if a stored place differs from the expected place, because another
-- process has moved it. Refuses partitions that the database does not hold, since the caller
-- has not read their places.
WITH moved AS (
    INSERT INTO badged.ingest_places AS p (broker, stream, partition, incarnation, partition_id, position, resets)
    SELECT $1, $2, $3, $4, id, $6, $7 FROM unnest($5::smallint[]) AS id
    ON CONFLICT (partition_id, broker, stream, partition, incarnation) DO UPDATE SET position = excluded.position, resets = excluded.resets
    WHERE (p.resets, p.position) = (SELECT b.resets, b.position FROM unnest($5::smallint[], $8::integer[], $9::text[]) AS b (id, resets, position) WHERE b.id = p.partition_id)
    RETURNING 1
)
SELECT badged.refuse_batch(CASE WHEN EXISTS (
    SELECT FROM unnest($5::smallint[]) AS id WHERE id NOT IN (SELECT h.partition_id FROM badged.partitions AS h)
) THEN 'BD100' ELSE 'BD005' END)
WHERE (SELECT count(*) FROM moved) < cardinality($5::smallint[])

-- name: bury messages
INSERT INTO badged.dead_letters (origin, payload, reason)
SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[])
