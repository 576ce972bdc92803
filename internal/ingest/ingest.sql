-- name: create a position
INSERT INTO badged.ingest_positions (broker, stream, partition, incarnation) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING

-- name: read a position
-- And how many other streams had its name.
SELECT position, resets, (SELECT count(*) FROM badged.ingest_positions AS o
                  WHERE (o.broker, o.stream, o.partition) = (p.broker, p.stream, p.partition) AND o.incarnation <> p.incarnation)
FROM badged.ingest_positions AS p
WHERE (broker, stream, partition, incarnation) = ($1, $2, $3, $4)

-- name: move the position
-- From $5 to $6, behind $7 more messages, in a stream that went back $8 times. It fails if the position is elsewhere: another
-- process has read on.
WITH moved AS (
    UPDATE badged.ingest_positions
    SET position = $6, messages = messages + $7, resets = $8, read_at = clock_timestamp()
    WHERE (broker, stream, partition, incarnation) = ($1, $2, $3, $4) AND position = $5
    RETURNING 1
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM moved) THEN badged.refuse_batch('BD005') END

-- name: read places
-- Of the partitions that the database holds.
SELECT partition_id, resets, position FROM badged.ingest_places
WHERE (broker, stream, partition, incarnation) = ($1, $2, $3, $4) AND partition_id IN (SELECT h.partition_id FROM badged.partitions AS h)

-- name: move places
-- Those of the partitions $5 to $6, in a stream that went back $7 times. It fails if one is
-- not where $8 and $9 say, its resets and position, which are null if it has none: another
-- process has read on. It refuses partitions that the database does not hold, whose places
-- were not read.
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
