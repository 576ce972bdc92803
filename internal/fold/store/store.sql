-- The statements that batches and their readers run. pNN is replaced by the number of a
-- partition. Some statements are templates: words in capitals are replaced too.

-- name: incarnation
-- Identifies the incarnation of Postgres by its timeline and the start time of its postmaster.
-- A promotion and a point-in-time recovery change the timeline. A restore of a data directory,
-- and a crash that loses commits, need a restart, which changes the start time. Works for
-- every role, on a primary only.
left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text

-- name: read the state
SELECT p.epoch, o.revision, (SELECT max(generation) FROM badged.dedup_generations WHERE partition_id = $1),
       p.incarnation, p.incarnation = {incarnation}, clock_timestamp(),
       EXISTS (SELECT FROM badged.rooms_pNN),
       coalesce((SELECT m.revision FROM badged.shard_partitions AS m WHERE m.partition_id = $1), 0)
FROM badged.partitions AS p, badged.events_pNN_offsets AS o
WHERE p.partition_id = $1 AND o.consumer_group = 'projector'

-- name: read the incarnation
SELECT {incarnation}

-- name: move
-- The fence. Moves the position from ($1, $2) to ($3, $4), stores the pending transactions $5,
-- and counts $6 events. Fails if the position is not ($1, $2), since another owner has moved
-- it, or if the revision is not $7, since another program has changed rows or the epoch.
WITH moved AS (
    UPDATE badged.events_pNN_offsets AS o
    SET last_processed_transaction_id = $3::bigint::text::xid8, offset_acked = $4, pending = $5::bigint[]::text[]::xid8[],
        folded = o.folded + $6
    WHERE o.consumer_group = 'projector' AND o.last_processed_transaction_id = $1::bigint::text::xid8 AND o.offset_acked = $2
      AND o.revision = $7
    RETURNING 1
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM moved) THEN badged.refuse_batch('BD001') END

-- name: nothing else is left
o.consumer_group = 'projector' AND o.last_processed_transaction_id = $1::xid8 AND o.offset_acked = $2
      AND o.revision = $4
      AND NOT EXISTS (SELECT FROM badged.events_pNN
                      WHERE (transaction_id, "offset") > ($1::xid8, $2) AND transaction_id >= $1::xid8
                        AND transaction_id <> pg_current_xact_id())

-- name: move to the end
-- This statement takes its snapshot after the transaction has got its id. If no transaction
-- with a lower id is open then, none is pending. Otherwise a function collects the pending
-- transactions; a subquery in its place would cost time even in the frequent case, where it
-- does not run.
UPDATE badged.events_pNN_offsets AS o
    SET last_processed_transaction_id = pg_current_xact_id(),
        offset_acked = (SELECT max("offset") FROM badged.events_pNN WHERE transaction_id = pg_current_xact_id()),
        pending = CASE WHEN pg_snapshot_xmin(pg_current_snapshot()) = pg_current_xact_id() THEN '{}'
                       ELSE badged.pending_at(pg_current_xact_id(), pg_current_snapshot(), o.last_processed_transaction_id, o.pending) END,
        folded = o.folded + $3
    WHERE {nothing else is left}

-- name: moved to
RETURNING last_processed_transaction_id AS id, offset_acked, pending

-- name: require the move
SELECT CASE WHEN id IS NULL THEN badged.refuse_batch('BD001') END, id::text::bigint, offset_acked, pending::text[]::bigint[]
FROM (SELECT) AS one LEFT JOIN moved ON true

-- name: move past an append
-- The fence of a transaction that folds the events it has appended to the log. Moves the
-- position from ($1, $2) to the last row of this transaction, and returns the new position and
-- the pending transactions. Counts $3 events. Fails like the statement move, with $4 as the
-- revision, and also if the log has any other unfolded row. No transaction may be pending at
-- ($1, $2).
WITH moved AS (
    {move to the end}
    {moved to}
)
{require the move}

-- name: move past an append with pending transactions
WITH moved AS (
    {move to the end}
      AND NOT EXISTS (SELECT FROM badged.events_pNN WHERE transaction_id = ANY (o.pending))
    {moved to}
)
{require the move}

-- name: move late events
-- Moves the rows at the places ($2, $3) to places directly after the position ($4, $5), and
-- preserves their order.
SELECT badged.move_late($1, $2, $3, $4, $5)

-- name: read rows
-- COLUMNS are columns of TABLE. The caller appends a condition or a join.
SELECT COLUMNS FROM TABLE

-- name: load rows
COPY TABLE (partition_id, NAMES) FROM STDIN WITH (NULL '')

-- name: of users
WHERE user_id = ANY ($1::text[])

-- name: by key
JOIN unnest($1::text[], $2::text[]) AS k (user_id, conversation_id) USING (user_id, conversation_id)

-- name: to be read
-- The conversations with messages above the read position, seen or not, or with a mark.
{of users} AND (read_seq < last_seq OR marked_unread OR again_set IS NOT NULL)

-- name: without conversations
-- Returns the users in $1 without conversations. The row of a user does not show whether there
-- are any: a recall that is folded before its message creates only a row of the conversation.
SELECT k.user_id
FROM unnest($1::text[]) AS k (user_id)
WHERE NOT EXISTS (SELECT FROM TABLE AS c WHERE c.user_id = k.user_id)

-- name: insert rows
-- Inserts rows into TABLE, in the columns NAMES. PARAMETERS are values, or arrays that the
-- SELECT list unnests: there, shorter arrays are padded with NULL, while each function in a
-- FROM clause would first be materialized. STORED are expressions that compute the columns.
INSERT INTO TABLE (partition_id, NAMES)
SELECT PARTITION, STORED
FROM (SELECT PARAMETERS) AS r

-- name: update rows
-- Fails unless every row exists. The function is called only if a row is missing, which saves
-- a tenth of the time.
WITH updated AS (
    UPDATE TABLE AS t
    SET CHANGES
    FROM (SELECT PARAMETERS) AS r
    WHERE SAME_KEY
    RETURNING 1
)
SELECT CASE WHEN n <> cardinality($1::text[]) THEN badged.refuse_missing(cardinality($1::text[]) - n, cardinality($1::text[])) END
FROM (SELECT count(*) AS n FROM updated) AS updated

-- name: update a row
-- Like update rows, but for a single row, so that no count is needed.
WITH updated AS (
    UPDATE TABLE AS t
    SET CHANGES
    FROM (SELECT PARAMETERS) AS r
    WHERE SAME_KEY
    RETURNING 1
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM updated) THEN badged.refuse_missing(1, 1) END

-- name: paths by key
JOIN unnest($1::text[], $2::text[]) AS k (user_id, category) USING (user_id, category)

-- name: paths with levels
WHERE user_id = ANY ($1::text[]) AND level IS NOT NULL

-- name: delete paths
DELETE FROM PATHS AS p USING unnest($1::text[], $2::text[]) AS k (user_id, category)
WHERE p.user_id = k.user_id AND p.category = k.category

-- name: delete the paths of users
DELETE FROM PATHS WHERE user_id = ANY ($1::text[])

-- name: bury a dead letter
INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", index, uuid, payload, reason, user_ids)
VALUES ($1, $2::bigint::text::xid8, $3, $4, $5, $6, $7, $8)
-- The event may already have a letter, stored for other users before the position was set
-- back.
ON CONFLICT (partition_id, transaction_id, "offset", index) DO NOTHING

-- name: letters
-- The dead letters, and the places of dead letters that were retried or discarded.
(SELECT partition_id, transaction_id, "offset", index, user_ids FROM badged.dead_letters
UNION ALL
SELECT partition_id, transaction_id, "offset", index, user_ids FROM badged.settled_letters) AS letters

-- name: read the dead letters of a part of the log
SELECT transaction_id::text::bigint, "offset", index, user_ids FROM {letters}
WHERE partition_id = $1 AND (transaction_id, "offset") >= ($2::bigint::text::xid8, $3::bigint) AND (transaction_id, "offset") <= ($4::bigint::text::xid8, $5::bigint)

-- name: read the dead letters of some rows
SELECT transaction_id::text::bigint, "offset", index, user_ids
FROM unnest($2::bigint[], $3::bigint[]) AS wanted (id, place) JOIN {letters} ON transaction_id = wanted.id::text::xid8 AND "offset" = wanted.place
WHERE partition_id = $1

-- name: reset the expiry sweep
-- Makes the next expiry sweep check all conversations of the partition again. Required in each
-- transaction that folds old events, or that writes rows other than by folding, since the
-- sweep may already have passed these rows.
DELETE FROM badged.expiry_progress WHERE partition_id = $1

-- name: read the generations
SELECT generation, transaction_id::text::bigint, "offset"
FROM badged.dedup_generations
WHERE partition_id = $1
ORDER BY generation

-- name: begin a generation
INSERT INTO badged.dedup_generations (partition_id, generation, transaction_id, "offset")
VALUES ($1, $2, $3::bigint::text::xid8, $4)

-- name: record a late fold
-- Records when a batch of partition $1 has folded late: the events after the position ($2, $3)
-- up to ($4, $5). If the last record began less than a second ago and ends at ($2, $3), the
-- statement extends it. Otherwise it adds up to two rows. The first row has no time and ends
-- the series of earlier events, which were folded without delay. The second row ends the
-- series of late events. So there are at most two rows per second.
WITH last AS (
    SELECT number, transaction_id, "offset", since FROM badged.late_folds
    WHERE partition_id = $1::smallint ORDER BY number DESC LIMIT 1
), merged AS (
    UPDATE badged.late_folds AS l
    SET transaction_id = $4::bigint::text::xid8, "offset" = $5, folded_at = clock_timestamp()
    FROM last
    WHERE l.partition_id = $1 AND l.number = last.number AND (last.transaction_id, last."offset") = ($2::bigint::text::xid8, $3::bigint)
      AND l.folded_at IS NOT NULL AND last.since > clock_timestamp() - interval '1 second'
    RETURNING 1
)
INSERT INTO badged.late_folds (partition_id, number, transaction_id, "offset", folded_at)
SELECT $1, coalesce((SELECT number FROM last), 0) + place.n, place.transaction_id::text::xid8, place."offset",
       CASE WHEN place.n = 2 THEN clock_timestamp() END
FROM (VALUES (1, $2::bigint, $3::bigint), (2, $4::bigint, $5::bigint)) AS place (n, transaction_id, "offset")
WHERE NOT EXISTS (SELECT FROM merged)
  AND (place.n = 2 OR NOT EXISTS (SELECT FROM last WHERE (last.transaction_id, last."offset") = ($2::bigint::text::xid8, $3::bigint)))

-- name: read the late folds
SELECT transaction_id::text::bigint, "offset", folded_at
FROM badged.late_folds WHERE partition_id = $1 ORDER BY number

-- name: rooms by key
WHERE conversation_id = ANY ($1::text[])

-- name: memberships of users
WHERE user_id = ANY ($1::text[]) AND joined IS NOT NULL

-- name: rooms of members
WHERE conversation_id IN (SELECT conversation_id FROM CONVERSATIONS {memberships of users})

-- name: members of rooms
WHERE conversation_id = ANY ($1::text[]) AND joined IS NOT NULL

-- name: users who are members of rooms
WHERE user_id IN (SELECT user_id FROM CONVERSATIONS {members of rooms})

-- name: messages
unnest($1::text[], $2::bigint[]) AS k (conversation_id, seq)

-- name: chunks of messages
-- The closed chunks to which the messages belong, if there are any.
JOIN (
    SELECT DISTINCT k.conversation_id,
        (SELECT min(c.bound) FROM CHUNKS AS c WHERE c.conversation_id = k.conversation_id AND c.bound >= k.seq) AS bound
    FROM {messages}
) AS k USING (conversation_id, bound)

-- name: read marks
SELECT conversation_id, seq, user_id, own FROM MARKS JOIN {messages} USING (conversation_id, seq)

-- name: marked users
WHERE user_id IN (SELECT user_id FROM MARKS JOIN {messages} USING (conversation_id, seq))

-- name: marked memberships
WHERE (user_id, conversation_id) IN (SELECT user_id, conversation_id FROM MARKS JOIN {messages} USING (conversation_id, seq))
  AND joined IS NOT NULL

-- name: write marks
INSERT INTO MARKS (partition_id, conversation_id, seq, user_id, own)
SELECT PARTITION, r.* FROM unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[]) AS r
ON CONFLICT (conversation_id, seq, user_id) DO UPDATE SET own = excluded.own

-- name: delete marks
DELETE FROM MARKS AS m
USING unnest($1::text[], $2::bigint[], $3::text[]) AS r (conversation_id, seq, user_id)
WHERE m.conversation_id = r.conversation_id AND m.seq = r.seq AND m.user_id = r.user_id

-- name: delete chunks
DELETE FROM CHUNKS WHERE conversation_id = $1 AND bound >= $2

-- name: delete merged chunks
DELETE FROM CHUNKS WHERE conversation_id = $1 AND bound = ANY ($2::bigint[])

-- name: delete marks above
DELETE FROM MARKS WHERE conversation_id = $1 AND seq > $2
