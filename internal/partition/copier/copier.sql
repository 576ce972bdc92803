-- Statements that copy a partition while it serves reads and writes. pNN stands for the
-- partition.

-- name: plan for many rows
-- The pools of projectors allow only plans that look up rows by key. The idle timeout is long
-- because the transaction that reads a snapshot of the source is idle while the target writes.
SET enable_seqscan = on; SET enable_bitmapscan = on; SET enable_hashjoin = on; SET enable_mergejoin = on; SET enable_memoize = on; SET plan_cache_mode = auto;
SET idle_in_transaction_session_timeout = '10min'

-- name: say what is moved
SELECT set_config('badged.moving', $1, false)

-- name: columns of a table
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute AS a
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attname COLLATE "C"

-- name: forget a move
DELETE FROM badged.moves WHERE partition_id = $1

-- name: forget the changes
DELETE FROM badged.move_changes WHERE partition_id = $1

-- name: gate the log
CREATE OR REPLACE TRIGGER gate BEFORE INSERT ON badged.events_pNN FOR EACH STATEMENT EXECUTE FUNCTION badged.gate_appends(PARTITION)

-- name: watch the payloads
-- Payloads change only when a user is erased. An erasure cannot run at the same time as a move.
CREATE OR REPLACE TRIGGER moving AFTER UPDATE OF payload ON badged.events_pNN FOR EACH ROW EXECUTE FUNCTION badged.note_erased(PARTITION)

-- name: refuse appends
CREATE OR REPLACE TRIGGER not_held BEFORE INSERT ON badged.events_pNN FOR EACH STATEMENT EXECUTE FUNCTION badged.refuse_not_held(PARTITION)

-- name: watch a table
SELECT badged.watch_changes($1, $2, $3, $4, $5)

-- name: close the gate for publishers
SELECT pg_advisory_xact_lock(1650552167, $1)

-- name: close the gate for writers
SELECT pg_advisory_xact_lock(1650552183, $1)

-- name: keeps the gate open
-- The condition that the lock l belongs to a transaction that has appended to the partition.
l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid IN (1650552167, 1650552183) AND l.objid = $1

-- name: locks the tables
l.relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'badged'::regnamespace)

-- name: rows to fold
-- Counts the rows behind a position, at most 10,000, and the rows of pending transactions, which
-- were open when the projector passed their ids.
SELECT (SELECT count(*) FROM (
    SELECT FROM badged.events_pNN WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2) AND transaction_id >= $1::bigint::text::xid8 LIMIT 10000) AS e)
  + (SELECT count(*) FROM badged.events_pNN WHERE transaction_id = ANY ($3::bigint[]::text[]::xid8[]))

-- name: bound of a chunk of the log
-- Returns the row that fills a chunk: the $5th row, or the row that reaches 16 MiB.
SELECT transaction_id::text::bigint, "offset"
FROM (
    SELECT transaction_id, "offset", row_number() OVER w AS n, sum(octet_length(payload)) OVER w AS bytes
    FROM (
        SELECT transaction_id, "offset", payload FROM badged.events_pNN
        WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint) AND transaction_id >= $1::bigint::text::xid8
          AND (transaction_id, "offset") <= ($3::bigint::text::xid8, $4::bigint) AND transaction_id <= $3::bigint::text::xid8
        ORDER BY transaction_id, "offset" LIMIT $5
    ) AS e
    WINDOW w AS (ORDER BY transaction_id, "offset")
) AS e
WHERE n = $5 OR bytes >= 16777216
ORDER BY transaction_id, "offset" LIMIT 1

-- name: changes
-- Returns the first $2 changes, ordered by number.
SELECT number, kind FROM badged.move_changes WHERE partition_id = $1 ORDER BY number LIMIT $2

-- name: changes are copied
DELETE FROM badged.move_changes WHERE number = ANY ($1)

-- name: forget copied changes
VACUUM (ANALYZE, TRUNCATE false) badged.move_changes

-- name: copy a table as a whole
INSERT INTO badged.move_changes (partition_id, kind, key) SELECT $1, unnest($2::text[]), '{}'

-- name: forget the places
DELETE FROM badged.move_places WHERE partition_id = $1

-- name: count the triggers
SELECT count(*) FROM pg_trigger WHERE tgname IN ('moving', 'gate') AND NOT tgisinternal AND tgrelid = ANY ($1::text[]::regclass[])

-- name: was a frozen table changed
SELECT EXISTS (SELECT FROM badged.move_changes WHERE partition_id = $1 AND (kind LIKE '%\_baseline' OR kind = 'events'))

-- name: owned
-- Counts the partitions among $2 that sessions own (locks of class $1), and reports whether any
-- member of the cluster is connected (locks of class $3).
SELECT count(DISTINCT l.objid) FILTER (WHERE l.classid = $1 AND l.objid = ANY ($2::bigint[]::oid[])), count(*) FILTER (WHERE l.classid = $3) > 0
FROM pg_locks AS l
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
