-- Statements of moves. pNN stands for the partition, and PLACES for a query of the places in the
-- log (transaction id and offset) that its tables store.

-- name: look
-- Reads whether the shard has the partition, and its row of badged.moves.
SELECT (SELECT name FROM badged.shard), (SELECT cluster::text FROM badged.shard),
    EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1),
    coalesce((SELECT revision FROM badged.shard_partitions WHERE partition_id = $1), 0),
    EXISTS (SELECT FROM badged.shard_partitions WHERE partition_id = $1 AND shard = '' AND revision > 0),
    (SELECT partitions FROM badged.settings),
    coalesce(m.move_id::text, ''), coalesce(m.role, ''), coalesce(m.source, ''), coalesce(m.target, ''), coalesce(m.revision, 0), coalesce(m.state, ''),
    coalesce(m.copied_id, 0), coalesce(m.copied_offset, 0), coalesce(m.copied_rows, 0), coalesce(m.behind, 0), coalesce(m.epoch, ''),
    coalesce(m.era = badged.log_era(), false), coalesce(m.round::text, '')
FROM (SELECT) AS one LEFT JOIN badged.moves AS m ON m.partition_id = $1

-- name: begin at the source
INSERT INTO badged.moves (partition_id, move_id, role, source, target, revision, state, era)
VALUES ($1, $2, 'source', $3, $4, $5, 'copying', badged.log_era())
ON CONFLICT (partition_id) DO UPDATE SET move_id = excluded.move_id, role = excluded.role, source = excluded.source, target = excluded.target,
    era = excluded.era, revision = excluded.revision, state = excluded.state, epoch = NULL, round = NULL, begun_at = clock_timestamp()

-- name: begin at the target
INSERT INTO badged.moves (partition_id, move_id, role, source, target, revision, state, behind, era)
VALUES ($1, $2, 'target', $3, $4, $5, 'copying', $6, badged.log_era())

-- name: last offset
-- The greatest offset that the log or a move has given to a row, even if the row is archived now.
-- In a database that was replicated, the sequence may be behind, so its value does not suffice.
SELECT greatest(coalesce(pg_sequence_last_value(pg_get_serial_sequence('badged.events_pNN', 'offset')), 0), max("offset"))
FROM (
    SELECT transaction_id, "offset" FROM badged.events_pNN
    UNION ALL SELECT last_processed_transaction_id, offset_acked FROM badged.events_pNN_offsets
    UNION ALL PLACES
) AS taken
WHERE transaction_id = '3'

-- name: the log is copied up to
UPDATE badged.moves SET copied_id = $2, copied_offset = $3, copied_rows = $4 WHERE partition_id = $1

-- name: the target is
UPDATE badged.moves SET state = $2, epoch = $3, round = $4::uuid WHERE partition_id = $1

-- name: the round is
UPDATE badged.moves SET round = $2::uuid WHERE partition_id = $1

-- name: stored places
SELECT DISTINCT transaction_id::text::bigint, "offset"
FROM (PLACES UNION ALL SELECT last_processed_transaction_id, coalesce(offset_acked, 0) FROM badged.events_pNN_offsets) AS places
ORDER BY 1, 2

-- name: known places
SELECT source_id, source_offset FROM badged.move_places WHERE partition_id = $1

-- name: count rows
-- For each of the places ($1, $2), counts the rows after ($3, $4) up to the place, and reports
-- whether the place has a row. Rows of transactions $5 do not count, since they are not folded.
SELECT id, "offset", sum(n) OVER (ORDER BY id, "offset")::bigint, is_row
FROM (
    SELECT p.id, p."offset",
        (SELECT count(*) FROM badged.events_pNN AS e
         WHERE (e.transaction_id, e."offset") > (p.last_id::text::xid8, p.last_offset) AND e.transaction_id >= p.last_id::text::xid8
           AND (e.transaction_id, e."offset") <= (p.id::text::xid8, p."offset") AND e.transaction_id <= p.id::text::xid8
           AND e.transaction_id <> ALL ($5::bigint[]::text[]::xid8[])) AS n,
        EXISTS (SELECT FROM badged.events_pNN AS e WHERE e.transaction_id = p.id::text::xid8 AND e."offset" = p."offset") AS is_row
    FROM (
        SELECT id, "offset", lag(id, 1, $3::bigint) OVER w AS last_id, lag("offset", 1, $4::bigint) OVER w AS last_offset
        FROM unnest($1::bigint[], $2::bigint[]) AS place (id, "offset")
        WINDOW w AS (ORDER BY id, "offset")
    ) AS p
) AS counted

-- name: add places
INSERT INTO badged.move_places (partition_id, source_id, source_offset, place, is_row)
SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[])

-- name: translate places of rows
-- A place without a row is not translated: the row is in the archive, with that place.
UPDATE moved_rows AS r SET transaction_id = '3', "offset" = p.place
FROM badged.move_places AS p
WHERE p.partition_id = $1 AND p.is_row AND p.source_id = r.transaction_id::text::bigint AND p.source_offset = r."offset"

-- name: translate places between rows
UPDATE moved_rows AS r SET transaction_id = '3', "offset" = p.place
FROM badged.move_places AS p
WHERE p.partition_id = $1 AND p.source_id = r.transaction_id::text::bigint AND p.source_offset = r."offset"

-- name: positions
INSERT INTO badged.events_pNN_offsets (consumer_group, offset_acked, last_processed_transaction_id, pending, folded, revision)
SELECT r.consumer_group, p.place, '3', '{}', r.folded, r.revision
FROM moved_rows AS r JOIN badged.move_places AS p
  ON p.partition_id = $1 AND p.source_id = r.last_processed_transaction_id::text::bigint AND p.source_offset = coalesce(r.offset_acked, 0)

-- name: last numbers
SELECT (SELECT last_value FROM badged.target_generations),
    coalesce(pg_sequence_last_value(pg_get_serial_sequence('badged.events_pNN', 'offset')), 0)

-- name: raise the numbers
SELECT setval('badged.target_generations', greatest($1, (SELECT last_value FROM badged.target_generations))),
    setval(pg_get_serial_sequence('badged.events_pNN', 'offset'),
        greatest($2, $3, coalesce(pg_sequence_last_value(pg_get_serial_sequence('badged.events_pNN', 'offset')), 1)))

-- name: revocations
-- Reads $3 revocations after number $2, and returns those for users of the partition. The first
-- column is the last number that was read, null if there are no more revocations.
WITH page AS MATERIALIZED (SELECT * FROM badged.revocations WHERE seq > $2 ORDER BY seq LIMIT $3)
SELECT (SELECT max(seq) FROM page), p.user_id, p.revoked_before, p.ended_at
FROM badged.level_of($1) AS l
LEFT JOIN page AS p ON p.revoked_before IS NOT NULL AND badged.partition_of(p.user_id, l.modulus) = $1 - l.base

-- name: add revocations
-- Running processes have these revocations already; starting processes read all of them.
WITH counted AS (UPDATE badged.revocation_counter SET last = last + cardinality($1::text[]) RETURNING last - cardinality($1::text[]) AS before)
INSERT INTO badged.revocations AS r (user_id, revoked_before, ended_at, seq)
SELECT k.user_id, k.revoked_before, k.ended_at, c.before + k.n
FROM counted AS c, unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) WITH ORDINALITY AS k (user_id, revoked_before, ended_at, n)
ON CONFLICT (user_id) DO UPDATE SET seq = excluded.seq, ended_at = greatest(r.ended_at, excluded.ended_at),
    revoked_before = greatest(r.revoked_before, excluded.revoked_before)

-- name: hold up revocations
-- A transaction that writes revocations has this lock until its commit.
SELECT last FROM badged.revocation_counter FOR UPDATE

-- name: forget revocations
DELETE FROM badged.revocations USING badged.level_of($1) AS l WHERE badged.partition_of(user_id, l.modulus) = $1 - l.base

-- name: epoch
-- Returns the present epoch, or a new epoch if Postgres was restarted since the epoch began: the
-- owner of the partition would begin a new epoch then anyway.
SELECT CASE WHEN incarnation = left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text
    THEN epoch ELSE substr(replace(gen_random_uuid()::text, '-', ''), 1, 12) END
FROM badged.partitions WHERE partition_id = $1

-- name: release
SELECT badged.release_moved_partition($1, $2, $3)

-- name: hold
SELECT badged.complete_move($1, $2::uuid, nullif($3, '')::uuid)

-- name: take back
SELECT badged.take_back_partition($1, $2)

-- name: webhooks
SELECT to_jsonb(w)::text FROM badged.webhooks AS w

-- name: add webhooks
INSERT INTO badged.webhooks SELECT (jsonb_populate_record(NULL::badged.webhooks, w::jsonb)).* FROM unnest($1::text[]) AS w
ON CONFLICT (name) DO NOTHING

-- name: tell of the map
SELECT badged.map_partition($1, $2, $3)

-- name: the map
SELECT partition_id, shard, revision FROM badged.shard_partitions

-- name: add to the map
SELECT badged.map_partition(partition, shard, revision) FROM unnest($1::integer[], $2::text[], $3::bigint[]) AS known (partition, shard, revision)

-- name: settle the ranges
SELECT badged.settle_log_ranges($1)

-- name: the source has released
UPDATE badged.moves SET state = 'released', round = $2::uuid WHERE partition_id = $1

-- name: sizes
SELECT substring(relname FROM '_p([0-9]+)')::integer, sum(pg_total_relation_size(oid))::bigint
FROM pg_class
WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r' AND relname ~ '_p[0-9][0-9]+'
GROUP BY 1

-- name: moves
SELECT partition_id, role, target, state, copied_rows FROM badged.moves
