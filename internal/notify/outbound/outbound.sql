-- Devices that get pushes, endpoints of webhooks, and what is due for them. pNN stands for the
-- number of a partition.
--
-- A due time is checked against a limit when it is read: a clock that was wrong may have
-- stored a time further ahead than the longest wait.

-- name: longest wait
-- 24 hours, plus up to a fifth at random, rounded up. The random part spreads the retries of
-- targets that failed together.
interval '29 hours'

-- name: quiet until
-- A quiet time is valid only if it began, at told_at, in the past.
CASE WHEN d.told_at <= clock_timestamp() THEN d.quiet_until END

-- name: held until
CASE WHEN d.held_until <= clock_timestamp() + {longest wait} THEN d.held_until END

-- name: serialize registrations
SELECT pg_advisory_xact_lock(hashtextextended($1::text, 1652647026)), pg_advisory_xact_lock(hashtextextended(encode($2::bytea, 'hex'), 1652647026))

-- name: take the token from other devices
-- Does nothing if the user has $4 devices with other tokens: the registration will fail.
DELETE FROM badged.devices WHERE fingerprint = $1 AND (user_id, device_id) <> ($2::text, $3::text)
  AND (SELECT count(*) FROM badged.devices_pNN WHERE user_id = $2 AND device_id <> $3 AND fingerprint <> $1) < $4

-- name: register a device
-- Returns whether the device is new, and no row if the user has $10 other devices already. If
-- the last push failed or may be in flight, told becomes null: the number that the device
-- shows is unknown, since the report of that push will be for the former generation.
INSERT INTO badged.devices_pNN AS d (partition_id, user_id, device_id, app, platform, environment, shows, token, fingerprint,
    generation, changes, registered_at, due, attempts)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, nextval('badged.target_generations'), 0, clock_timestamp(), clock_timestamp(), 0
WHERE (SELECT count(*) FROM badged.devices_pNN WHERE user_id = $2 AND device_id <> $3) < $10
ON CONFLICT (user_id, device_id) DO UPDATE
SET app = excluded.app, platform = excluded.platform, environment = excluded.environment, shows = excluded.shows,
    token = excluded.token, fingerprint = excluded.fingerprint, generation = excluded.generation, registered_at = excluded.registered_at,
    attempts = 0, last_error = NULL, last_error_at = NULL,
    (due, told, told_version, told_epoch, told_at, quiet_until, held_until) = (
        SELECT s.* FROM (SELECT CASE WHEN d.attempts = 0 THEN d.due ELSE excluded.due END,
            CASE WHEN d.attempts = 0 AND (d.due IS NULL OR d.due > clock_timestamp()) THEN d.told END,
            d.told_version, d.told_epoch, d.told_at, d.quiet_until, CASE WHEN d.attempts = 0 THEN d.held_until END) AS s
        WHERE (d.app, d.platform, d.environment, d.shows, d.fingerprint)
            = (excluded.app, excluded.platform, excluded.environment, excluded.shows, excluded.fingerprint)
        UNION ALL
        SELECT excluded.due, NULL, NULL, NULL, NULL, NULL, NULL
        LIMIT 1
    )
RETURNING xmax = 0

-- name: device
user_id, device_id, app, platform, environment, shows, token, fingerprint,
    generation, registered_at, due, told, told_version, told_epoch, told_at, quiet_until, held_until,
    attempts, last_error, last_error_at

-- name: read a device
SELECT {device} FROM badged.devices_pNN WHERE user_id = $1 AND device_id = $2

-- name: list devices
SELECT {device} FROM badged.devices_pNN WHERE user_id = $1 ORDER BY device_id

-- name: delete a device
DELETE FROM badged.devices_pNN WHERE user_id = $1 AND device_id = $2

-- name: has an alert
EXISTS (SELECT FROM badged.alerts_pNN AS a WHERE a.user_id = d.user_id AND a.device_id = d.device_id AND a.settled_at IS NULL)

-- name: lock devices
-- Run this statement before the statement that looks for alerts. A single UPDATE that waited
-- for the lock of a row would see the newest version of the row, but not the alerts that were
-- added together with this version.
SELECT FROM badged.devices_pNN AS d
JOIN unnest($1::text[], $2::text[]) AS s (user_id, device_id) ON (d.user_id, d.device_id) = (s.user_id, s.device_id)
ORDER BY d.user_id, d.device_id
FOR UPDATE OF d

-- name: hold connected devices
-- An open app shows the number itself, so what the device shows later is unknown.
UPDATE badged.devices_pNN AS d
SET held_until = greatest({held until}, clock_timestamp() + $3::interval), told = NULL,
    held_by = array_append(CASE WHEN d.held_until > clock_timestamp() THEN array_remove(d.held_by, $4) END, $4),
    due = CASE WHEN d.due IS NOT NULL THEN greatest(CASE WHEN d.due <= clock_timestamp() + {longest wait} THEN d.due END, clock_timestamp() + $3::interval) END
FROM unnest($1::text[], $2::text[]) AS s (user_id, device_id)
WHERE (d.user_id, d.device_id) = (s.user_id, s.device_id)

-- name: is held by another
array_remove(d.held_by, $3) <> '{}'

-- name: release devices
-- Ends the hold of gateway $3. The device stays held if other gateways hold it, or until its
-- retry if the last push failed. Run it after "lock devices", in the same transaction.
UPDATE badged.devices_pNN AS d
SET held_by = array_remove(d.held_by, $3),
    held_until = CASE WHEN {is held by another} OR d.attempts > 0 THEN d.held_until END,
    due = CASE WHEN {is held by another} THEN d.due WHEN d.due IS NOT NULL THEN greatest(clock_timestamp(),
        CASE WHEN d.attempts > 0 THEN {held until} END, CASE WHEN NOT {has an alert} THEN {quiet until} END) END
FROM unnest($1::text[], $2::text[]) AS s (user_id, device_id)
WHERE (d.user_id, d.device_id) = (s.user_id, s.device_id)

-- name: add a webhook
INSERT INTO badged.webhooks (name, url, secrets, events, categories, batch, rate, state, declared, generation)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, nextval('badged.target_generations'))
ON CONFLICT (name) DO NOTHING

-- name: replace a webhook
-- Updates no row if the generation is not $10.
UPDATE badged.webhooks
SET url = $2, secrets = $3, events = $4, categories = $5, batch = $6, rate = $7, state = $8, declared = $9,
    generation = nextval('badged.target_generations'), updated_at = clock_timestamp(), step = 0, due = NULL, failing_since = NULL
WHERE name = $1 AND generation = $10

-- name: try a webhook again
-- Makes all queued rows due now, except reminders that have not failed: they stay due at their
-- time.
UPDATE badged.webhook_queue AS q SET due = clock_timestamp(), attempts = 0
FROM (
    SELECT partition_id, webhook, type, subject FROM badged.webhook_queue
    WHERE webhook = $1 AND due IS NOT NULL AND (type <> 'unread.reminder' OR attempts > 0)
    ORDER BY partition_id, type, subject FOR UPDATE
) AS k
WHERE (q.partition_id, q.webhook, q.type, q.subject) = (k.partition_id, k.webhook, k.type, k.subject)

-- name: webhook
name, url, secrets, events, categories, batch, rate, state, declared,
    generation, created_at, updated_at,
    step, due, failing_since, last_success_at, last_failure_at, coalesce(last_status, 0), coalesce(last_error, '')

-- name: read a webhook
SELECT {webhook} FROM badged.webhooks WHERE name = $1

-- name: list webhooks
SELECT {webhook} FROM badged.webhooks ORDER BY name

-- name: count queued events
-- Counts at most $2 rows for each of the webhooks $1.
SELECT w.name, (SELECT count(*) FROM (
    SELECT FROM badged.webhook_queue AS q WHERE q.webhook = w.name AND q.due <= clock_timestamp() LIMIT $2
) AS due)
FROM unnest($1::text[]) AS w (name)

-- name: list the partitions
SELECT partition_id::integer FROM badged.partitions

-- name: count events of the log
-- Counts the folded events that the webhooks $2 do not have yet.
SELECT substr(o.consumer_group, length('badged webhook ') + 1) AS name, greatest(f.folded - o.folded, 0) AS n
FROM badged.events_pNN_offsets AS f, badged.events_pNN_offsets AS o
WHERE f.consumer_group = $1 AND o.consumer_group = ANY ($2)

-- name: delete a webhook
DELETE FROM badged.webhooks WHERE name = $1

-- name: record a call
-- Only operators make a webhook active again: a process that does not know yet that the
-- webhook was stopped must not do so.
UPDATE badged.webhooks
SET state = CASE state WHEN 'active' THEN $3 ELSE state END, step = $4, due = $5, failing_since = $6, last_success_at = $7, last_failure_at = $8, last_status = nullif($9, 0), last_error = nullif($10, '')
WHERE name = $1 AND generation = $2

-- name: record an earlier success
-- Records the success of a call with former settings, but the same URL, unless a later call is
-- recorded.
UPDATE badged.webhooks
SET last_success_at = $3, last_status = nullif($4, 0), last_error = NULL
WHERE name = $1 AND url = $2 AND step = 0 AND $3 > coalesce(greatest(last_success_at, last_failure_at), '-infinity')

-- name: enqueue subjects
INSERT INTO badged.webhook_queue_pNN AS q (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
SELECT $1, w.name, $2, s.subject, clock_timestamp(), clock_timestamp(), 1, 0
FROM badged.webhooks AS w, (SELECT DISTINCT unnest($3::text[]) AS subject) AS s
WHERE $2 = ANY (w.events) AND w.state <> 'disabled'
ON CONFLICT (webhook, type, subject) DO UPDATE
SET queued_at = CASE WHEN q.due IS NULL THEN excluded.queued_at ELSE q.queued_at END,
    due = least(q.due, excluded.due), changes = q.changes + 1

-- name: tells of users
events && ARRAY['badge.changed', 'unread.reminder'] AND state <> 'disabled'

-- name: round is due
-- A round waits at most $1: a later due time was stored while a clock was wrong.
(o.due <= clock_timestamp() OR o.due > clock_timestamp() + $1::interval)

-- name: read the partition state
-- $2 is the partition, $3 the consumer group of the projector, and $4 the consumer group of
-- the notifier.
SELECT f.last_processed_transaction_id::text::bigint, f.offset_acked, f.pending::text[]::bigint[],
    o.last_processed_transaction_id::text::bigint, o.offset_acked, f.revision, n.revision, n.after_user,
    EXISTS (SELECT FROM badged.devices_pNN),
    EXISTS (SELECT FROM badged.webhooks WHERE {tells of users}),
    EXISTS (SELECT FROM badged.room_rounds_pNN AS o WHERE {round is due})
FROM badged.events_pNN_offsets AS f, badged.events_pNN_offsets AS o, badged.notifier_partitions AS n
WHERE f.consumer_group = $3 AND o.consumer_group = $4 AND n.partition_id = $2

-- name: move
-- The fence: moves the position of the group $1 from ($2, $3) to ($4, $5). Updates no row if
-- another notifier has moved it.
UPDATE badged.events_pNN_offsets SET last_processed_transaction_id = $4::bigint::text::xid8, offset_acked = $5
WHERE consumer_group = $1 AND last_processed_transaction_id = $2::bigint::text::xid8 AND offset_acked = $3

-- name: set the revision
UPDATE badged.notifier_partitions SET revision = $2, after_user = $3 WHERE partition_id = $1

-- name: page through the users of devices
SELECT DISTINCT user_id FROM badged.devices_pNN WHERE user_id > $1 ORDER BY user_id LIMIT $2

-- name: from then on
greatest(clock_timestamp(), {quiet until}, {held until})

-- name: mark devices
-- Returns the number of devices by queue.
WITH marked AS (
    UPDATE badged.devices_pNN AS d SET changes = d.changes + 1, due = least(d.due, {from then on})
    WHERE d.user_id = ANY ($1)
    RETURNING d.app, d.platform
)
SELECT app, platform, count(*) FROM marked GROUP BY app, platform

-- name: find users with devices
SELECT DISTINCT user_id FROM badged.devices_pNN WHERE user_id = ANY ($1)

-- name: notify
-- Makes the devices of added alerts due. Alerts wait for the end of a hold, but not of a quiet
-- time. Append it to a common table expression named added.
, due AS (
    UPDATE badged.devices_pNN AS d SET due = least(d.due, greatest(clock_timestamp(), {held until}))
    FROM (SELECT DISTINCT user_id, device_id FROM added) AS a
    WHERE d.user_id = a.user_id AND d.device_id = a.device_id
    RETURNING d.app, d.platform
)
SELECT app, platform, count(*) FROM due GROUP BY app, platform

-- name: add alerts
-- Skips old alerts: older than $11 by the clock of Postgres and by the clock of the process,
-- $10, since one of the clocks may be wrong.
WITH added AS (
    INSERT INTO badged.alerts_pNN (partition_id, user_id, device_id, conversation_id, seq, mentions, named, title, body, data, queued_at)
    SELECT $1, d.user_id, d.device_id, a.conversation_id, a.seq, a.mentions, a.mentions, a.title, a.body, nullif(a.data, '')::jsonb, a.at
    FROM unnest($2::text[], $3::text[], $4::bigint[], $5::boolean[], $6::text[], $7::text[], $8::text[], $9::timestamptz[])
        AS a (user_id, conversation_id, seq, mentions, title, body, data, at)
    JOIN badged.devices_pNN AS d ON d.user_id = a.user_id
    WHERE a.at > least(clock_timestamp(), $10) - $11::interval
    ON CONFLICT DO NOTHING
    RETURNING user_id, device_id
){notify}

-- name: add alerts of rooms
INSERT INTO badged.room_alerts_pNN (partition_id, conversation_id, seq, mentions_all, sender_id, title, body, data, queued_at)
SELECT $1, a.conversation_id, a.seq, a.mentions_all, a.sender_id, a.title, a.body, nullif(a.data, '')::jsonb, clock_timestamp()
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::boolean[], $6::text[], $7::text[], $8::text[], $9::timestamptz[])
    AS a (sender_id, conversation_id, seq, mentions_all, title, body, data, at)
WHERE EXISTS (SELECT FROM badged.rooms_pNN AS r WHERE r.conversation_id = a.conversation_id AND r.members > 0)
    AND a.at > least(clock_timestamp(), $10) - $11::interval
ON CONFLICT DO NOTHING

-- name: alerts of the round
-- Alerts that were stored before the round through room $1 began.
badged.room_alerts_pNN AS a
JOIN badged.room_rounds_pNN AS o ON o.conversation_id = a.conversation_id AND a.queued_at <= o.began_at

-- name: hand out alerts of a room
WITH added AS (
    INSERT INTO badged.alerts_pNN (partition_id, user_id, device_id, conversation_id, seq, mentions, named, title, body, data, queued_at)
    SELECT $1, d.user_id, d.device_id, a.conversation_id, a.seq, a.mentions_all, false, a.title, a.body, a.data, a.queued_at
    FROM {alerts of the round}
    JOIN badged.devices_pNN AS d ON d.user_id = ANY ($3) AND d.user_id <> a.sender_id
    WHERE a.conversation_id = $2
    ON CONFLICT DO NOTHING
    RETURNING user_id, device_id
){notify}

-- name: forget alerts of a room
DELETE FROM badged.room_alerts_pNN AS a USING badged.room_rounds_pNN AS o
WHERE a.conversation_id = $1 AND o.conversation_id = $1 AND a.queued_at <= o.began_at

-- name: read alerts
-- The last column says whether the alert is too old, as in "add alerts".
SELECT k.ord, a.conversation_id, a.seq, a.mentions, a.named, a.title, a.body, a.data, a.queued_at,
    a.queued_at <= least(clock_timestamp(), $4) - $5::interval
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (user_id, device_id, ord)
CROSS JOIN LATERAL (
    SELECT * FROM badged.alerts_pNN AS a
    WHERE a.user_id = k.user_id AND a.device_id = k.device_id AND a.settled_at IS NULL
    ORDER BY a.queued_at, a.seq LIMIT $3
) AS a
ORDER BY k.ord, a.queued_at, a.seq

-- name: read shown alerts
-- Returns the newest alerts that were sent and not retracted.
SELECT k.ord, a.conversation_id, a.seq
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (user_id, device_id, ord)
CROSS JOIN LATERAL (
    SELECT * FROM badged.alerts_pNN AS a
    WHERE a.user_id = k.user_id AND a.device_id = k.device_id AND a.sent_at IS NOT NULL AND a.retracted_at IS NULL
    ORDER BY a.sent_at DESC LIMIT $3
) AS a
ORDER BY k.ord, a.sent_at DESC, a.conversation_id, a.seq

-- name: mark rooms
INSERT INTO badged.room_rounds_pNN AS r (partition_id, conversation_id, due, changed)
SELECT $1, room, clock_timestamp(), true FROM unnest($2::text[]) AS room
WHERE EXISTS (SELECT FROM badged.rooms_pNN AS r WHERE r.conversation_id = room AND r.members > 0)
ON CONFLICT (conversation_id) DO UPDATE SET changed = true

-- name: take a round
SELECT o.conversation_id, o.changed, o.began_at, o.after_user,
    coalesce((SELECT members FROM badged.rooms_pNN AS r WHERE r.conversation_id = o.conversation_id), 0)
FROM badged.room_rounds_pNN AS o
WHERE {round is due}
ORDER BY o.due LIMIT 1
FOR UPDATE SKIP LOCKED

-- name: forget a round
DELETE FROM badged.room_rounds_pNN WHERE conversation_id = $1

-- name: begin a round
-- A round begins after its alerts were queued, even if the clock was set back since.
UPDATE badged.room_rounds_pNN
SET began_at = greatest(clock_timestamp(), (SELECT max(queued_at) FROM badged.room_alerts_pNN WHERE conversation_id = $1)), changed = false, after_user = ''
WHERE conversation_id = $1

-- name: page through members
-- Returns only members with devices.
SELECT c.user_id
FROM badged.conversations_pNN AS c
WHERE c.conversation_id = $1 AND c.joined IS NOT NULL AND c.user_id > $2 AND c.level <> 'none'
  AND EXISTS (SELECT FROM badged.devices_pNN AS d WHERE d.user_id = c.user_id)
ORDER BY c.user_id LIMIT $3

-- name: continue a round
-- The round continues after other rounds that are due.
UPDATE badged.room_rounds_pNN SET after_user = $2, due = clock_timestamp() WHERE conversation_id = $1

-- name: end a round
-- The next round may begin $2 after the start of this one.
UPDATE badged.room_rounds_pNN SET due = began_at + $2::interval, began_at = NULL, after_user = NULL WHERE conversation_id = $1

-- name: delete old alerts
-- Deletes at most $4 alerts. Alerts that devices show are kept for $2, so that they can be
-- retracted. An alert is old only if it is old both by the clock of Postgres and by the clock
-- of the process, $3. The condition uses statement_timestamp(): Postgres cannot use an index
-- with clock_timestamp(), which changes between rows.
DELETE FROM badged.alerts_pNN WHERE ctid = ANY (ARRAY(
    SELECT a.ctid FROM (VALUES (0, $1::interval), (1, $2::interval)) AS k (shown, age)
    CROSS JOIN LATERAL (
        SELECT ctid FROM badged.alerts_pNN
        WHERE CASE WHEN sent_at IS NOT NULL AND retracted_at IS NULL THEN 1 ELSE 0 END = k.shown
          AND queued_at < least(statement_timestamp(), $3) - k.age
        LIMIT $4
    ) AS a
    LIMIT $4))

-- name: read due devices
-- told is null if the number that the device shows is unknown: after a failed push, or if
-- another process may have sent a push before that process ended.
SELECT d.user_id, d.device_id, d.environment, d.shows, d.token, d.generation, d.registered_at, d.changes, d.due, d.attempts, d.told_epoch,
    CASE WHEN d.due > $6 AND d.attempts = 0 THEN d.told END
FROM badged.devices_pNN AS d
WHERE d.app = $1 AND d.platform = $2 AND (d.due <= clock_timestamp() OR d.due > clock_timestamp() + {longest wait})
  AND (d.user_id, d.device_id) NOT IN (SELECT t.u, t.d FROM unnest($3::text[], $4::text[]) AS t (u, d))
ORDER BY d.due LIMIT $5

-- name: read due calls
-- A reminder waits at most $5. A reminder cannot be undone, so none is due while the clock of
-- the process, $6, and the clock of Postgres differ by more than $7.
SELECT q.type, q.subject, q.changes, q.attempts, q.queued_at, q.told
FROM badged.webhook_queue_pNN AS q
WHERE q.webhook = $1
  AND (q.due <= clock_timestamp() OR q.due > clock_timestamp() + CASE WHEN q.type = 'unread.reminder' THEN greatest($5, {longest wait}) ELSE {longest wait} END)
  AND (q.type <> 'unread.reminder' OR clock_timestamp() BETWEEN $6::timestamptz - $7::interval AND $6::timestamptz + $7::interval)
  AND (q.type, q.subject) NOT IN (SELECT t.t, t.s FROM unnest($2::text[], $3::text[]) AS t (t, s))
ORDER BY q.due LIMIT $4

-- name: read the reader of a webhook
-- $1 is the consumer group of the projector, $2 the consumer group of the webhook $3, and $4
-- the partition.
SELECT f.last_processed_transaction_id::text::bigint, f.offset_acked, f.pending::text[]::bigint[], f.folded, f.revision,
    o.last_processed_transaction_id::text::bigint, o.offset_acked, o.folded, t.revision, t.after_user, w.events
FROM badged.events_pNN_offsets AS f, badged.events_pNN_offsets AS o, badged.tail_partitions AS t, badged.webhooks AS w
WHERE f.consumer_group = $1 AND o.consumer_group = $2 AND w.name = $3 AND t.consumer_group = $2 AND t.partition_id = $4

-- name: are webhooks unsettled
-- True if a webhook that gets events about users has no position in the partition, or if a
-- position belongs to no such webhook.
SELECT EXISTS (
    SELECT FROM (SELECT consumer_group FROM badged.tail_partitions WHERE partition_id = $1 AND consumer_group LIKE 'badged webhook %') AS t
    FULL JOIN (SELECT 'badged webhook ' || name AS consumer_group FROM badged.webhooks WHERE {tells of users}) AS w USING (consumer_group)
    LEFT JOIN badged.events_pNN_offsets AS o USING (consumer_group)
    WHERE t IS NULL OR w IS NULL OR o IS NULL
)

-- name: settle webhooks
SELECT badged.settle_webhooks($1)

-- name: move the position of a webhook
-- Moves the position from ($2, $3) to ($4, $5), and is the fence, as in "move". Stores that
-- the webhook has got the first $6 events of the partition and, for revision $7, the events
-- about all users up to $8, or about all users if $8 is null.
WITH moved AS (
    UPDATE badged.events_pNN_offsets SET last_processed_transaction_id = $4::bigint::text::xid8, offset_acked = $5, folded = $6
    WHERE consumer_group = $1 AND last_processed_transaction_id = $2::bigint::text::xid8 AND offset_acked = $3
    RETURNING 1
), told AS (
    UPDATE badged.tail_partitions SET revision = $7, after_user = $8
    WHERE consumer_group = $1 AND partition_id = $9 AND (revision, after_user) IS DISTINCT FROM ($7, $8) AND EXISTS (SELECT FROM moved)
)
SELECT EXISTS (SELECT FROM moved)

-- name: page through users
SELECT user_id FROM badged.users_pNN WHERE user_id > $1 ORDER BY user_id LIMIT $2

-- name: read which rooms are large
SELECT conversation_id, members > $2 FROM badged.rooms_pNN WHERE conversation_id = ANY ($1)

-- name: read members
SELECT DISTINCT user_id FROM badged.conversations_pNN WHERE conversation_id = ANY ($1) AND joined IS NOT NULL AND level <> 'none'

-- name: read what was unread
-- The last column says whether the clock of the process, $3, differs from the clock of
-- Postgres by at most $4.
SELECT s.subject, q.told, clock_timestamp() BETWEEN $3::timestamptz - $4::interval AND $3::timestamptz + $4::interval
FROM unnest($2::text[]) AS s (subject)
LEFT JOIN badged.webhook_queue_pNN AS q ON q.webhook = $1 AND q.type = 'unread.reminder' AND q.subject = s.subject

-- name: read rooms
SELECT r.conversation_id, r.category, p.epoch, r.changes, r.last_seq, r.members
FROM badged.rooms_pNN AS r, badged.partitions AS p
WHERE p.partition_id = $1 AND r.conversation_id = ANY ($2)

-- name: read dead letters
SELECT id, partition_id, coalesce(transaction_id::text || '/' || "offset", ''), coalesce(origin, ''), reason, created_at FROM badged.dead_letters WHERE id = ANY ($1)

-- name: settle alerts
UPDATE badged.alerts_pNN AS a SET settled_at = clock_timestamp(), title = '', body = '', data = NULL,
    sent_at = CASE WHEN s.is_sent THEN clock_timestamp() END
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::boolean[]) AS s (user_id, device_id, conversation_id, seq, is_sent)
WHERE (a.user_id, a.device_id, a.conversation_id, a.seq) = (s.user_id, s.device_id, s.conversation_id, s.seq)

-- name: retract alerts
UPDATE badged.alerts_pNN AS a SET retracted_at = clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS s (user_id, device_id, conversation_id, seq)
WHERE (a.user_id, a.device_id, a.conversation_id, a.seq) = (s.user_id, s.device_id, s.conversation_id, s.seq)

-- name: store told devices
-- A device that has changed since it was read is due again. If the app was opened meanwhile,
-- the device may show a newer number than the push, so told becomes null. Run it after "lock
-- devices", in the same transaction.
UPDATE badged.devices_pNN AS d
SET told_epoch = s.epoch, told_version = s.version, told_at = clock_timestamp(),
    told = CASE WHEN d.attempts > 0 OR coalesce({held until} <= clock_timestamp(), true) THEN s.number END,
    quiet_until = greatest({quiet until}, clock_timestamp() + s.quiet), held_until = CASE WHEN d.attempts = 0 THEN {held until} END, attempts = 0, last_error = NULL, last_error_at = NULL,
    due = CASE WHEN {has an alert} THEN greatest(clock_timestamp(), CASE WHEN d.attempts = 0 THEN {held until} END)
        WHEN d.changes <> s.changes THEN greatest(clock_timestamp() + s.quiet, CASE WHEN d.attempts = 0 THEN {held until} END) END
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::interval[])
    AS s (user_id, device_id, generation, changes, epoch, version, number, quiet)
WHERE (d.user_id, d.device_id, d.generation) = (s.user_id, s.device_id, s.generation)
    -- A former owner of the partition may report late.
    AND (d.told_epoch IS DISTINCT FROM s.epoch OR d.told_version IS NULL OR d.told_version <= s.version)

-- name: store devices that need not be told
UPDATE badged.devices_pNN AS d SET due = CASE WHEN {has an alert} THEN clock_timestamp() END
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS s (user_id, device_id, generation, changes)
WHERE (d.user_id, d.device_id, d.generation, d.changes) = (s.user_id, s.device_id, s.generation, s.changes)

-- name: store devices that were not told
UPDATE badged.devices_pNN AS d
SET held_until = clock_timestamp() + s.after, due = clock_timestamp() + s.after,
    attempts = d.attempts + 1, last_error = s.reason, last_error_at = clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::interval[], $5::text[]) AS s (user_id, device_id, generation, after, reason)
WHERE (d.user_id, d.device_id, d.generation) = (s.user_id, s.device_id, s.generation)

-- name: hold devices
UPDATE badged.devices_pNN AS d SET held_until = clock_timestamp() + s.after, due = clock_timestamp() + s.after
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::interval[]) AS s (user_id, device_id, generation, after)
WHERE (d.user_id, d.device_id, d.generation) = (s.user_id, s.device_id, s.generation)

-- name: delete devices that are gone
DELETE FROM badged.devices_pNN AS d
USING unnest($1::text[], $2::text[], $3::bigint[]) AS s (user_id, device_id, generation)
WHERE (d.user_id, d.device_id, d.generation) = (s.user_id, s.device_id, s.generation)

-- name: rows of a webhook
-- $1 is repeated for each row. With the condition q.webhook = $1, Postgres would compare every
-- row with every other as long as its statistics say that the queue is small.
unnest(array_fill($1::text, ARRAY[cardinality($2::text[])]), $2::text[], $3::text[]

-- name: delete told calls
-- Keeps rows that were queued again. Rows with 0 changes come from the log and match any row.
DELETE FROM badged.webhook_queue_pNN AS q
USING {rows of a webhook}, $4::bigint[]) AS s (webhook, type, subject, changes)
WHERE (q.webhook, q.type, q.subject) = (s.webhook, s.type, s.subject) AND s.changes IN (q.changes, 0)

-- name: store told calls
UPDATE badged.webhook_queue_pNN AS q
SET told = nullif(s.told, '')::jsonb, attempts = 0,
    due = clock_timestamp() + CASE WHEN q.changes <> s.changes THEN interval '0' ELSE nullif(s.again, interval '0') END,
    queued_at = CASE WHEN q.changes <> s.changes THEN clock_timestamp() ELSE q.queued_at END
FROM {rows of a webhook}, $4::bigint[], $5::text[], $6::interval[]) AS s (webhook, type, subject, changes, told, again)
WHERE (q.webhook, q.type, q.subject) = (s.webhook, s.type, s.subject)

-- name: queue calls
-- Queues calls that came from the log. If several pages had the same subject, the newest one
-- counts.
INSERT INTO badged.webhook_queue_pNN AS q (partition_id, webhook, type, subject, queued_at, due, changes, attempts, told)
SELECT DISTINCT ON (s.type, s.subject) $1::integer, $2::text, s.type, s.subject, s.at, clock_timestamp() + nullif(s.again, interval '0'), 1, s.attempts, nullif(s.told, '')::jsonb
FROM unnest($3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::interval[], $8::integer[]) AS s (type, subject, at, told, again, attempts)
WHERE EXISTS (SELECT FROM badged.webhooks WHERE name = $2)
ORDER BY s.type, s.subject, s.at DESC
ON CONFLICT (webhook, type, subject) DO UPDATE
SET changes = q.changes + 1, due = excluded.due, attempts = excluded.attempts, told = coalesce(excluded.told, q.told)

-- name: store calls that were not made
UPDATE badged.webhook_queue_pNN AS q SET due = clock_timestamp() + s.after, attempts = q.attempts + 1
FROM {rows of a webhook}, $4::interval[]) AS s (webhook, type, subject, after)
WHERE (q.webhook, q.type, q.subject) = (s.webhook, s.type, s.subject)

-- name: measure
-- $1 is the consumer group of the projector, and $2 the consumer group of the notifier.
-- Subqueries read the positions first: a join would read the whole log if there are no
-- events between the positions.
SELECT d.n::double precision, d.oldest, c.n::double precision, c.oldest, coalesce((
    SELECT (SELECT extract(epoch FROM clock_timestamp() - e.created_at) FROM badged.events_pNN AS e
        WHERE (e.transaction_id, e."offset") > (o.last_processed_transaction_id, o.offset_acked) AND e.transaction_id >= o.last_processed_transaction_id
          AND (e.transaction_id, e."offset") <= (f.last_processed_transaction_id, f.offset_acked) AND e.transaction_id <= f.last_processed_transaction_id
        ORDER BY e.transaction_id, e."offset" LIMIT 1)
    FROM badged.events_pNN_offsets AS f, badged.events_pNN_offsets AS o
    WHERE f.consumer_group = $1 AND o.consumer_group = $2), 0)::double precision
FROM (
    SELECT count(*) AS n, coalesce(extract(epoch FROM clock_timestamp() - min(due)), 0)::double precision AS oldest
    FROM (SELECT due FROM badged.devices_pNN WHERE due <= clock_timestamp() LIMIT 100000) AS waiting
) AS d, (
    SELECT count(*) AS n, coalesce(extract(epoch FROM clock_timestamp() - min(due)), 0)::double precision AS oldest
    FROM (SELECT due FROM badged.webhook_queue_pNN WHERE due <= clock_timestamp() LIMIT 100000) AS waiting
) AS c

-- name: measure webhooks
-- $1 is the consumer group of the projector.
SELECT substr(o.consumer_group, length('badged webhook ') + 1), greatest(f.folded - o.folded, 0)::double precision, coalesce(e.seconds, 0)::double precision
FROM badged.events_pNN_offsets AS f
JOIN badged.events_pNN_offsets AS o ON o.consumer_group LIKE 'badged webhook %'
LEFT JOIN LATERAL (
    SELECT greatest(extract(epoch FROM clock_timestamp() - e.created_at), 0) AS seconds FROM badged.events_pNN AS e
    WHERE (e.transaction_id, e."offset") > (o.last_processed_transaction_id, o.offset_acked) AND e.transaction_id >= o.last_processed_transaction_id
      AND (e.transaction_id, e."offset") <= (f.last_processed_transaction_id, f.offset_acked) AND e.transaction_id <= f.last_processed_transaction_id
      AND e.transaction_id <> ALL (f.pending)
    ORDER BY e.transaction_id, e."offset" LIMIT 1
) AS e ON f.folded > o.folded
WHERE f.consumer_group = $1
