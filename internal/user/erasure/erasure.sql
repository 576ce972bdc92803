-- Statements that find, erase or rewrite the data of a user. $1 is the user id in most
-- statements. pNN stands for the user's partition, COLUMNS for the columns of a row of the
-- log.

-- name: read the tables of the partition
-- Sets of message numbers are returned encoded.
SELECT 'user', to_jsonb(t) FROM badged.users_pNN AS t WHERE user_id = $1
UNION ALL
SELECT 'conversation', to_jsonb(t) FROM badged.conversations_pNN AS t WHERE user_id = $1
UNION ALL
SELECT 'path', to_jsonb(t) FROM badged.paths_pNN AS t WHERE user_id = $1
UNION ALL
SELECT 'room_mark', to_jsonb(t) FROM badged.room_marks_pNN AS t WHERE user_id = $1
UNION ALL
SELECT 'baseline_user', to_jsonb(t) FROM badged.users_pNN_baseline AS t WHERE user_id = $1
UNION ALL
SELECT 'baseline_conversation', to_jsonb(t) FROM badged.conversations_pNN_baseline AS t WHERE user_id = $1
UNION ALL
SELECT 'baseline_path', to_jsonb(t) FROM badged.paths_pNN_baseline AS t WHERE user_id = $1
UNION ALL
SELECT 'baseline_room_mark', to_jsonb(t) FROM badged.room_marks_pNN_baseline AS t WHERE user_id = $1

-- name: held
EXISTS (SELECT FROM badged.partitions AS p WHERE p.partition_id = t.partition_id)

-- name: read the other tables
-- Omits the tokens of devices, since apps keep them secret. Omits rows of partitions that the
-- database does not hold: a move may have copied such rows here, or not yet deleted them.
SELECT 'healed_user', to_jsonb(t) FROM badged.healed_users AS t WHERE user_id = $1 AND {held}
UNION ALL
SELECT 'device', to_jsonb(t) - ARRAY['token', 'fingerprint'] FROM badged.devices AS t WHERE user_id = $1 AND {held}
UNION ALL
SELECT 'alert', to_jsonb(t) FROM badged.alerts AS t WHERE user_id = $1 AND {held}
UNION ALL
SELECT 'room_alert', to_jsonb(t) FROM badged.room_alerts AS t WHERE sender_id = $1 AND {held}
UNION ALL
SELECT 'webhook_call', to_jsonb(t) FROM badged.webhook_queue AS t
WHERE subject = $1 AND webhook IN (SELECT name FROM badged.webhooks) AND type IN ('badge.changed', 'unread.reminder', 'drift.found') AND {held}
UNION ALL
SELECT 'revocation', to_jsonb(t) FROM badged.revocations AS t WHERE user_id = $1

-- name: letter may name
-- Uses the index on the words of dead letters.
badged.words(payload, reason, user_ids) ?| badged.words_of_user($1)

-- name: read the texts
-- The words match every text that may name the user; the caller searches these texts again. Rows
-- are returned as json and not as jsonb: columns of the type json may have strings and numbers that
-- jsonb cannot have, such as NUL.
SELECT 'dead_letter', to_json(t) FROM badged.dead_letters AS t WHERE {letter may name} AND (partition_id IS NULL OR {held})
UNION ALL
SELECT 'settled_letter', to_json(t) FROM badged.settled_letters AS t WHERE user_ids @> ARRAY[$1] AND {held}
UNION ALL
SELECT 'job', to_json(t) FROM badged.jobs AS t
UNION ALL
(SELECT 'action', to_json(t) FROM (
    SELECT a.*, e.ended_at, e.result, e.error
    FROM (
        SELECT id FROM badged.audit WHERE badged.words(who || '"' || arguments::text) ?| badged.words_of_user($1)
        UNION
        SELECT audit_id FROM badged.audit_ends WHERE badged.words(coalesce(result::text, '') || '"' || coalesce(error, '')) ?| badged.words_of_user($1)
    ) AS found
    JOIN badged.audit AS a USING (id) LEFT JOIN badged.audit_ends AS e ON e.audit_id = a.id
    ORDER BY a.id
) AS t)

-- name: may name
(substr(payload, 1, 1) NOT IN ('{'::bytea, '['::bytea) OR position(convert_to('"' || $1 || '"', 'UTF8') IN payload) > 0 OR position('\\'::bytea IN payload) > 0)

-- name: find rows
-- Searches any partition: events that name the user as sender are in the partitions of the
-- recipients. Also finds each row whose payload is compressed or has escapes, since its bytes
-- do not show whether it names the user. Complete ranges have an index on the names.
SELECT COLUMNS
FROM badged.events_pNN
WHERE (transaction_id, "offset") > ($2::bigint::text::xid8, $3::bigint) AND transaction_id >= $2::bigint::text::xid8
  AND {may name} AND badged.log_names(payload) && badged.log_names_of(ARRAY[$1])
ORDER BY transaction_id, "offset"

-- name: find late rows
SELECT COLUMNS
FROM badged.events_pNN
WHERE transaction_id = ANY ($2::bigint[]::text[]::xid8[]) AND {may name}

-- name: find an archived file
-- Ignores files that were given up.
SELECT EXISTS (SELECT FROM badged.archived_files JOIN badged.partitions USING (partition_id) WHERE given_up IS NULL)

-- name: count the archived events
SELECT coalesce(sum(events), 0)::bigint FROM badged.archived_files JOIN badged.partitions USING (partition_id)

-- name: read the ids of a partition
SELECT user_id FROM badged.users_pNN
UNION SELECT user_id FROM badged.users_pNN_baseline
UNION SELECT user_id FROM badged.room_marks_pNN
UNION SELECT user_id FROM badged.room_marks_pNN_baseline

-- name: read ids
-- Reads ids of users, who may have no row in the tables of badges.
SELECT user_id FROM badged.devices UNION SELECT user_id FROM badged.alerts UNION SELECT sender_id FROM badged.room_alerts
UNION SELECT user_id FROM badged.healed_users UNION SELECT user_id FROM badged.revocations
UNION SELECT unnest(user_ids) FROM badged.dead_letters UNION SELECT unnest(user_ids) FROM badged.settled_letters

-- name: read the arguments that may name a user
-- Returns text: Postgres cannot read every string that a column of the type json may have.
SELECT arguments::text FROM badged.audit WHERE position('"user"' IN arguments::text) > 0

-- name: announce an archived file
UPDATE badged.archived_files SET next_sha256 = $3 WHERE partition_id = $1 AND number = $2

-- name: settle archived files
UPDATE badged.archived_files AS f SET sha256 = m.sha256, next_sha256 = NULL, origin = nullif(m.origin, ''), revision = m.revision
FROM unnest($2::integer[], $3::text[], $4::text[], $5::integer[]) AS m (number, sha256, origin, revision)
WHERE f.partition_id = $1 AND f.number = m.number AND (f.sha256 <> m.sha256 OR f.next_sha256 IS NOT NULL)

-- name: read the rooms of the user
SELECT conversation_id FROM badged.conversations_pNN WHERE user_id = $1 AND joined IS NOT NULL ORDER BY conversation_id

-- name: read the next transaction id
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint

-- name: wait for indexes
-- Postgres does not write to a complete range while an index on it is being built: wait for
-- that first.
LOCK TABLE badged.events_pNN IN ROW EXCLUSIVE MODE

-- name: rewrite a row
-- Removes the metadata if all events of the row were erased.
UPDATE badged.events_pNN SET payload = $3, metadata = CASE WHEN NOT $4 THEN metadata END, own = true
WHERE transaction_id = $1::bigint::text::xid8 AND "offset" = $2

-- name: erase the rows of the user
WITH conversation AS (
    DELETE FROM badged.conversations_pNN WHERE user_id = $1 RETURNING 1
), other AS (
    DELETE FROM badged.users_pNN WHERE user_id = $1
), path AS (
    DELETE FROM badged.paths_pNN WHERE user_id = $1
), mark AS (
    DELETE FROM badged.room_marks_pNN WHERE user_id = $1
), healed AS (
    DELETE FROM badged.healed_users WHERE user_id = $1
), base AS (
    DELETE FROM badged.users_pNN_baseline WHERE user_id = $1
), base_conversation AS (
    DELETE FROM badged.conversations_pNN_baseline WHERE user_id = $1
), base_path AS (
    DELETE FROM badged.paths_pNN_baseline WHERE user_id = $1
), base_mark AS (
    DELETE FROM badged.room_marks_pNN_baseline WHERE user_id = $1
)
SELECT count(*) FROM conversation

-- name: raise the revision
-- Also raises the copies of the revision that the notifier and the tail of changes store, so that
-- they do not report the erasure as a change.
WITH raised AS (
    UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = $1
), devices AS (
    UPDATE badged.notifier_partitions SET revision = revision + 1 WHERE partition_id = $1
)
UPDATE badged.tail_partitions SET revision = revision + 1 WHERE partition_id = $1 AND revision >= 0

-- name: revoke the tokens
-- Revokes tokens issued before $2. If the database already has a revocation with a later time,
-- its time applies instead. The default of $2 is the latest iat that a token issued now may have,
-- since the issuer's clock may be ahead. Stores a digest, because the id must not remain.
WITH revoked AS (
    DELETE FROM badged.revocations WHERE user_id = $1 RETURNING revoked_before
), counted AS (
    UPDATE badged.revocation_counter SET last = last + 1 RETURNING last
)
INSERT INTO badged.erased_revocations AS r (seq, revoked_before, digest)
SELECT c.last, greatest(coalesce($2::timestamptz, clock_timestamp() + interval '5 seconds'), v.revoked_before), sha256(s.secret || convert_to($1, 'UTF8'))
FROM counted AS c LEFT JOIN revoked AS v ON true, badged.revocation_secret AS s
ON CONFLICT (digest) DO UPDATE SET seq = excluded.seq, revoked_before = greatest(r.revoked_before, excluded.revoked_before)
RETURNING revoked_before

-- name: erase the targets
WITH device AS (
    DELETE FROM badged.devices WHERE user_id = $1 RETURNING 1
), alert AS (
    DELETE FROM badged.alerts WHERE user_id = $1
), room_alert AS (
    UPDATE badged.room_alerts SET sender_id = '' WHERE sender_id = $1
), queued AS ( -- in the order in which others lock rows
    SELECT partition_id, webhook, type, subject FROM badged.webhook_queue
    WHERE subject = $1 AND webhook IN (SELECT name FROM badged.webhooks) AND type IN ('badge.changed', 'unread.reminder', 'drift.found')
    ORDER BY partition_id, webhook, type FOR UPDATE
), call AS (
    DELETE FROM badged.webhook_queue AS q USING queued AS k WHERE (q.partition_id, q.webhook, q.type, q.subject) = (k.partition_id, k.webhook, k.type, k.subject)
), round AS ( -- it begins with the first member again
    UPDATE badged.room_rounds SET after_user = '' WHERE after_user = $1
), notified AS (
    UPDATE badged.notifier_partitions SET after_user = '' WHERE after_user = $1
), tailed AS (
    UPDATE badged.tail_partitions SET after_user = '' WHERE after_user = $1
)
SELECT count(*) FROM device

-- name: read dead letters
SELECT id, payload, reason, user_ids FROM badged.dead_letters
-- Dead letters without a partition are messages of a broker.
WHERE partition_id IS NOT DISTINCT FROM $2 AND {letter may name}
ORDER BY id FOR UPDATE

-- name: erase a dead letter
DELETE FROM badged.dead_letters WHERE id = $1

-- name: rewrite a dead letter
UPDATE badged.dead_letters SET payload = $2, reason = $3, user_ids = $4 WHERE id = $1

-- name: erase the user from settled letters
UPDATE badged.settled_letters AS t SET user_ids = array_remove(user_ids, $1) WHERE user_ids @> ARRAY[$1] AND {held}

-- name: read jobs
SELECT id, arguments, progress, result, error FROM badged.jobs FOR UPDATE

-- name: rewrite a job
UPDATE badged.jobs SET arguments = $2, progress = $3, result = $4, error = $5 WHERE id = $1

-- name: read the keys of the baseline
SELECT key, generation, users FROM badged.keys_pNN_baseline WHERE position($1 IN users) > 0

-- name: rewrite a key of the baseline
UPDATE badged.keys_pNN_baseline SET users = $3 WHERE key = $1 AND generation = $2

-- name: erase a key of the baseline
DELETE FROM badged.keys_pNN_baseline WHERE key = $1 AND generation = $2

-- name: find hints
SELECT id FROM badged.hints
WHERE id > $2 AND (position($1 IN messages) > 0 OR position('\' IN messages) > 0)
ORDER BY id LIMIT $3

-- name: lock hints
SELECT id, messages FROM badged.hints WHERE id = ANY ($1) ORDER BY id FOR UPDATE

-- name: rewrite hints
UPDATE badged.hints SET messages = $2 WHERE id = $1

-- name: read hints
SELECT shard, stored_at, messages FROM badged.hints
WHERE position($1 IN messages) > 0 OR position('\' IN messages) > 0
ORDER BY id

-- name: drop what interrupted commands left
-- Staging tables of a rebuild, and tables of an archiving with its next baseline.
SELECT badged.drop_staging_tables(p), badged.drop_baseline_tables(p) FROM (SELECT DISTINCT partition_id::integer AS p FROM badged.log_ranges) AS existing
