-- What is told beside the sockets. pNN stands for a partition.

-- name: serialize registrations
SELECT pg_advisory_xact_lock(hashtextextended($1::text, 1652647026)), pg_advisory_xact_lock(hashtextextended(encode($2::bytea, 'hex'), 1652647026))

-- name: take the token from other devices
DELETE FROM badged.devices WHERE fingerprint = $1 AND (user_id, device_id) <> ($2::text, $3::text)

-- name: register a device
-- Returns whether it is new, and no row if the user has $10 other devices already.
INSERT INTO badged.devices_pNN AS d (partition_id, user_id, device_id, app, platform, environment, shows, token, fingerprint,
    generation, changes, registered_at, due, attempts)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, nextval('badged.target_generations'), 0, clock_timestamp(), clock_timestamp(), 0
WHERE (SELECT count(*) FROM badged.devices_pNN WHERE user_id = $2 AND device_id <> $3) < $10
ON CONFLICT (user_id, device_id) DO UPDATE
SET app = excluded.app, platform = excluded.platform, environment = excluded.environment, shows = excluded.shows,
    token = excluded.token, fingerprint = excluded.fingerprint, generation = excluded.generation, registered_at = excluded.registered_at,
    attempts = 0, last_error = NULL, last_error_at = NULL,
    (due, told, told_version, told_epoch, told_at, quiet_until) = (
        SELECT s.* FROM (SELECT d.due, d.told, d.told_version, d.told_epoch, d.told_at, d.quiet_until) AS s
        WHERE (d.app, d.platform, d.environment, d.shows, d.fingerprint)
            = (excluded.app, excluded.platform, excluded.environment, excluded.shows, excluded.fingerprint)
        UNION ALL
        SELECT excluded.due, NULL, NULL, NULL, NULL, NULL
        LIMIT 1
    )
RETURNING xmax = 0

-- name: device
user_id, device_id, app, platform, environment, shows, token, fingerprint,
    generation, registered_at, due, told, told_version, told_epoch, told_at, connected_until,
    attempts, last_error, last_error_at

-- name: read a device
SELECT {device} FROM badged.devices_pNN WHERE user_id = $1 AND device_id = $2

-- name: list devices
SELECT {device} FROM badged.devices_pNN WHERE user_id = $1 ORDER BY device_id

-- name: delete a device
DELETE FROM badged.devices_pNN WHERE user_id = $1 AND device_id = $2

-- name: put a webhook
-- Returns whether it is new.
INSERT INTO badged.webhooks (name, url, secrets, events, categories, batch, state, generation)
VALUES ($1, $2, $3, $4, $5, $6, $7, nextval('badged.target_generations'))
ON CONFLICT (name) DO UPDATE
SET url = excluded.url, secrets = excluded.secrets, events = excluded.events, categories = excluded.categories,
    batch = excluded.batch, state = excluded.state, generation = excluded.generation, updated_at = clock_timestamp(),
    step = 0, due = NULL, failing_since = NULL
RETURNING xmax = 0

-- name: webhook
name, url, secrets, events, categories, batch, state,
    generation, created_at, updated_at,
    step, due, failing_since, last_success_at, last_failure_at, last_status, last_error

-- name: read a webhook
SELECT {webhook} FROM badged.webhooks WHERE name = $1

-- name: list webhooks
SELECT {webhook} FROM badged.webhooks ORDER BY name

-- name: delete a webhook
DELETE FROM badged.webhooks WHERE name = $1

-- name: record a call
UPDATE badged.webhooks
SET state = $3, step = $4, due = $5, failing_since = $6, last_success_at = $7, last_failure_at = $8, last_status = $9, last_error = $10
WHERE name = $1 AND generation = $2

-- name: enqueue subjects
INSERT INTO badged.webhook_queue_pNN AS q (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
SELECT $1, w.name, $2, s.subject, clock_timestamp(), clock_timestamp(), 1, 0
FROM badged.webhooks AS w, (SELECT DISTINCT unnest($3::text[]) AS subject) AS s
WHERE $2 = ANY (w.events) AND w.state <> 'disabled'
ON CONFLICT (webhook, type, subject) DO UPDATE
SET queued_at = CASE WHEN q.due IS NULL THEN excluded.queued_at ELSE q.queued_at END,
    due = least(q.due, excluded.due), changes = q.changes + 1
