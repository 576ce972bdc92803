-- What badged holds of a user: $1 in all statements. pNN stands for the user's partition,
-- and COLUMNS for those of a row of the log.

-- name: read the tables
-- Without tokens of devices, which are secrets of their apps. Sets of messages are
-- encoded.
SELECT 'user', to_jsonb(t) FROM badged.users_pNN AS t WHERE user_id = $1
UNION ALL
SELECT 'conversation', to_jsonb(t) FROM badged.conversations_pNN AS t WHERE user_id = $1
UNION ALL
SELECT 'room_mark', to_jsonb(t) FROM badged.room_marks_pNN AS t WHERE user_id = $1
UNION ALL
SELECT 'healed_user', to_jsonb(t) FROM badged.healed_users AS t WHERE user_id = $1
UNION ALL
SELECT 'baseline_user', to_jsonb(t) FROM badged.users_pNN_baseline AS t WHERE user_id = $1
UNION ALL
SELECT 'baseline_conversation', to_jsonb(t) FROM badged.conversations_pNN_baseline AS t WHERE user_id = $1
UNION ALL
SELECT 'baseline_room_mark', to_jsonb(t) FROM badged.room_marks_pNN_baseline AS t WHERE user_id = $1
UNION ALL
SELECT 'device', to_jsonb(t) - ARRAY['token', 'fingerprint'] FROM badged.devices AS t WHERE user_id = $1
UNION ALL
SELECT 'alert', to_jsonb(t) FROM badged.alerts AS t WHERE user_id = $1
UNION ALL
SELECT 'room_alert', to_jsonb(t) FROM badged.room_alerts AS t WHERE sender_id = $1
UNION ALL
SELECT 'webhook_call', to_jsonb(t) FROM badged.webhook_queue AS t WHERE subject = $1 AND type IN ('badge.changed', 'unread.reminder')
UNION ALL
SELECT 'revocation', to_jsonb(t) FROM badged.revocations AS t WHERE user_id = $1

-- name: read the texts
-- What may mention the user: the texts are searched again, since JSON may be written
-- with escapes.
SELECT kind, record
FROM (
    SELECT 'dead_letter' AS kind, to_jsonb(t) AS record FROM badged.dead_letters AS t
    WHERE position(convert_to($1, 'UTF8') IN payload) > 0 OR position('\\'::bytea IN payload) > 0 OR payload IS NULL
        OR position($1 IN reason) > 0 OR $1 = ANY (user_ids)
    UNION ALL
    SELECT 'settled_letter', to_jsonb(t) FROM badged.settled_letters AS t WHERE $1 = ANY (user_ids)
    UNION ALL
    SELECT 'job', to_jsonb(t) FROM badged.jobs AS t
    UNION ALL
    SELECT 'action', to_jsonb(a) || jsonb_build_object('ended_at', e.ended_at, 'result', e.result, 'error', e.error)
    FROM badged.audit AS a LEFT JOIN badged.audit_ends AS e ON e.audit_id = a.id
) AS found
WHERE kind LIKE '%letter' OR position($1 IN record::text) > 0 OR position('\' IN record::text) > 0

-- name: find rows
-- In any partition: senders are in those of the recipients. A row whose text does not
-- tell is found too: it is compressed, or has escapes.
SELECT COLUMNS
FROM badged.events_pNN
WHERE (transaction_id, "offset") > ($2::bigint::text::xid8, $3::bigint) AND transaction_id >= $2::bigint::text::xid8
  AND (substr(payload, 1, 1) NOT IN ('{'::bytea, '['::bytea) OR position(convert_to($1, 'UTF8') IN payload) > 0 OR position('\\'::bytea IN payload) > 0)
ORDER BY transaction_id, "offset"
