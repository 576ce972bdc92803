-- What badged holds of a user: $1 in most statements. pNN stands for the user's partition,
-- and COLUMNS for those of a row of the log.

-- name: read the tables of the partition
-- Sets of messages are encoded.
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
-- Without tokens of devices, which are secrets of their apps, and without copies for
-- partitions that are not in the database yet, or no more.
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
-- By the index on their words.
badged.words(payload, reason, user_ids) ?| badged.words_of_user($1)

-- name: read the texts
-- What may mention the user: the texts are searched again.
SELECT 'dead_letter', to_jsonb(t) FROM badged.dead_letters AS t WHERE {letter may name} AND (partition_id IS NULL OR {held})
UNION ALL
SELECT 'settled_letter', to_jsonb(t) FROM badged.settled_letters AS t WHERE user_ids @> ARRAY[$1] AND {held}
UNION ALL
SELECT 'job', to_jsonb(t) FROM badged.jobs AS t
UNION ALL
SELECT 'action', to_jsonb(a) || jsonb_build_object('ended_at', e.ended_at, 'result', e.result, 'error', e.error)
FROM (
    SELECT id FROM badged.audit WHERE badged.words(who || '"' || arguments::text) ?| badged.words_of_user($1)
    UNION
    SELECT audit_id FROM badged.audit_ends WHERE badged.words(coalesce(result::text, '') || '"' || coalesce(error, '')) ?| badged.words_of_user($1)
) AS found
JOIN badged.audit AS a USING (id) LEFT JOIN badged.audit_ends AS e ON e.audit_id = a.id

-- name: may name
(substr(payload, 1, 1) NOT IN ('{'::bytea, '['::bytea) OR position(convert_to($1, 'UTF8') IN payload) > 0 OR position('\\'::bytea IN payload) > 0)

-- name: find rows
-- In any partition: senders are in those of the recipients. A row whose text does not
-- tell is found too: it is compressed, or has escapes.
SELECT COLUMNS
FROM badged.events_pNN
WHERE (transaction_id, "offset") > ($2::bigint::text::xid8, $3::bigint) AND transaction_id >= $2::bigint::text::xid8
  AND {may name}
ORDER BY transaction_id, "offset"

-- name: find late rows
SELECT COLUMNS
FROM badged.events_pNN
WHERE transaction_id = ANY ($2::bigint[]::text[]::xid8[]) AND {may name}

-- name: find an archived file
-- That was not given up.
SELECT EXISTS (SELECT FROM badged.archived_files JOIN badged.partitions USING (partition_id) WHERE given_up IS NULL)

-- name: count the archived events
SELECT coalesce(sum(events), 0)::bigint FROM badged.archived_files JOIN badged.partitions USING (partition_id)

-- name: read the ids of a partition
SELECT user_id FROM badged.users_pNN
UNION SELECT user_id FROM badged.users_pNN_baseline
UNION SELECT user_id FROM badged.room_marks_pNN
UNION SELECT user_id FROM badged.room_marks_pNN_baseline

-- name: read ids
-- Of users who may have no numbers.
SELECT user_id FROM badged.devices UNION SELECT user_id FROM badged.alerts UNION SELECT sender_id FROM badged.room_alerts
UNION SELECT user_id FROM badged.healed_users UNION SELECT user_id FROM badged.revocations
UNION SELECT unnest(user_ids) FROM badged.dead_letters UNION SELECT unnest(user_ids) FROM badged.settled_letters
UNION SELECT coalesce(arguments ->> 'user', '') FROM badged.audit

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

-- name: rewrite a row
-- Without its metadata if nothing remains of it.
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
-- Nothing is to be told because of it.
WITH raised AS (
    UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = $1
), devices AS (
    UPDATE badged.notifier_partitions SET revision = revision + 1 WHERE partition_id = $1
)
UPDATE badged.tail_partitions SET revision = revision + 1 WHERE partition_id = $1 AND revision >= 0

-- name: revoke the tokens
-- Those that were issued before $2, or before what was revoked already. By default $2 is the
-- latest iat that a token of today may have, since the clock of its issuer may be ahead.
-- Under a digest, since the id must not stay.
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
-- Without a partition it is a message of a broker.
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
-- Staging tables of a rebuild, and the next baseline of an archiving.
SELECT badged.drop_staging_tables(p), badged.drop_baseline_tables(p) FROM (SELECT DISTINCT partition_id::integer AS p FROM badged.log_ranges) AS existing
