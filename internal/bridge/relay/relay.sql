-- name: set up a session
-- Disables sequential scans: the number of rows changes so fast that statistics mislead the
-- planner. An asynchronous commit suffices: if a crash undoes it, rows are carried again, and
-- count once.
SELECT set_config('enable_seqscan', 'off', false), set_config('synchronous_commit', 'off', false)

-- name: read a page
-- Reads the rows after offset $1. Also reads rows up to $1 whose transaction was open when the
-- relay read these offsets: the transactions in $2, and all from $3 on. Returns at most $4
-- rows. payload is null if the rows before the row have $5 or more bytes. Always returns a
-- row, because each row also has the transactions that are open now.
WITH page AS (
    SELECT "offset", payload, sum(octet_length(payload)) OVER (ORDER BY "offset") - octet_length(payload) AS bytes_before
    FROM (
        (SELECT "offset", payload FROM badged.outbox WHERE "offset" > $1 ORDER BY "offset" LIMIT $4)
        UNION ALL
        (SELECT "offset", payload FROM badged.outbox WHERE transaction_id = ANY ($2::text[]::xid8[]) AND "offset" <= $1 ORDER BY "offset" LIMIT $4)
        UNION ALL
        -- OFFSET 0 makes the planner use the index on transactions.
        (SELECT "offset", payload FROM (SELECT "offset", payload FROM badged.outbox WHERE transaction_id >= $3::text::xid8 OFFSET 0) AS young WHERE "offset" <= $1 ORDER BY "offset" LIMIT $4)
        ORDER BY "offset" LIMIT $4
    ) AS unread
)
SELECT ARRAY(SELECT x::text FROM pg_snapshot_xip(snapshot) AS x) AS open, pg_snapshot_xmax(snapshot)::text AS young, "offset", CASE WHEN bytes_before < $5 THEN payload END
FROM (SELECT pg_current_snapshot() AS snapshot) AS always LEFT JOIN page ON true
ORDER BY "offset"

-- name: read waiting rows
-- Reads again the rows after offset $1 and up to $2. Omits rows whose transaction was open
-- when the relay first read these offsets: the transactions in $3, and all from $4 on. Returns
-- at most $5 rows. payload is null if the rows before the row have $6 or more bytes. The
-- columns are the columns of "read a page".
SELECT $3::text[] AS open, $4::text AS young, "offset", CASE WHEN bytes_before < $6 THEN payload END
FROM (
    SELECT "offset", payload, sum(octet_length(payload)) OVER (ORDER BY "offset") - octet_length(payload) AS bytes_before
    FROM (
        SELECT "offset", payload FROM badged.outbox
        WHERE "offset" > $1 AND "offset" <= $2 AND transaction_id <> ALL ($3::text[]::xid8[]) AND transaction_id < $4::text::xid8
        ORDER BY "offset" LIMIT $5
    ) AS waiting
) AS page
ORDER BY "offset"

-- name: set rows aside
INSERT INTO badged.outbox_refused ("offset", published_at, reason, payload)
SELECT o."offset", o.published_at, x.reason, o.payload
FROM unnest($1::bigint[], $2::text[]) AS x ("offset", reason) JOIN badged.outbox AS o USING ("offset")
ON CONFLICT DO NOTHING

-- name: delete rows
DELETE FROM badged.outbox WHERE "offset" = ANY ($1::bigint[])

-- name: measure
-- Counts the waiting rows, up to $1, and the rows that are set aside. Computes the age of the
-- first row.
SELECT (SELECT count(*) FROM (SELECT FROM badged.outbox LIMIT $1) AS waiting),
    coalesce((SELECT greatest(extract(epoch FROM clock_timestamp() - published_at), 0)::float8 FROM badged.outbox ORDER BY "offset" LIMIT 1), 0),
    (SELECT count(*) FROM badged.outbox_refused)

-- name: check rights
SELECT current_user::text, has_table_privilege('badged.outbox', 'SELECT') AND has_table_privilege('badged.outbox', 'DELETE')
    AND has_table_privilege('badged.outbox_refused', 'SELECT') AND has_table_privilege('badged.outbox_refused', 'INSERT')

-- name: list refusals
SELECT "offset", refused_at, reason, payload FROM badged.outbox_refused ORDER BY refused_at DESC, "offset" DESC LIMIT $1

-- name: retry refusals
WITH taken AS (DELETE FROM badged.outbox_refused RETURNING "offset", published_at, payload)
INSERT INTO badged.outbox (transaction_id, published_at, payload)
SELECT pg_current_xact_id(), published_at, payload FROM taken ORDER BY "offset"
