-- The audit trail, jobs and samples.

-- name: begin an action
INSERT INTO badged.audit (who, via, action, arguments) VALUES ($1, $2, $3, $4::text::json) RETURNING id

-- name: end an action
INSERT INTO badged.audit_ends (audit_id, result, error) VALUES ($1, $2::text::json, $3)

-- name: record failed sign-ins
WITH begun AS (
    INSERT INTO badged.audit (who, via, action, arguments)
    SELECT who, 'api', 'signin.failed', arguments::json FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS f (who, arguments, n) ORDER BY n
    RETURNING id
)
INSERT INTO badged.audit_ends (audit_id, error) SELECT id, 'refused' FROM begun

-- name: record loaded keys
-- If the keys were loaded at the start of a process ($3), records them only if the names ($4)
-- differ from the last entry.
WITH begun AS (
    INSERT INTO badged.audit (who, via, action, arguments)
    SELECT $1, 'file', 'keys.load', $2::text::json
    WHERE NOT $3::boolean OR $4::text IS DISTINCT FROM (
        SELECT arguments ->> 'keys' FROM badged.audit WHERE action = 'keys.load' ORDER BY id DESC LIMIT 1
    )
    RETURNING id
)
INSERT INTO badged.audit_ends (audit_id) SELECT id FROM begun

-- name: record a read
WITH begun AS (INSERT INTO badged.audit (who, via, action, arguments) VALUES ($1, $2, $3, $4::text::json) RETURNING id)
INSERT INTO badged.audit_ends (audit_id) SELECT id FROM begun

-- name: list actions
-- Ordered by time, by which the pages of several databases are merged.
SELECT id, at, who, via, action, arguments, ended_at, result, error
FROM (SELECT *, sum(octet_length(arguments::text) + coalesce(octet_length(result::text), 0) + coalesce(octet_length(error), 0))
          OVER (ORDER BY at DESC, id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer
      FROM (SELECT a.id, a.at, a.who, a.via, a.action, a.arguments, e.ended_at, e.result, e.error
            FROM badged.audit AS a LEFT JOIN badged.audit_ends AS e ON e.audit_id = a.id
            WHERE CASE WHEN $1::timestamptz IS NULL THEN $2::bigint = 0 OR a.id < $2 ELSE (a.at, a.id) < ($1, $2) END ORDER BY a.at DESC, a.id DESC LIMIT $3) AS page) AS page
WHERE coalesce(newer, 0) < $4
ORDER BY at DESC, id DESC

-- name: find when an action began
SELECT at FROM badged.audit WHERE id = $1

-- name: read the head of the audit trail
SELECT records, head, pruned, coalesce(pruned_head, '') FROM badged.audit_chain

-- name: walk the audit trail
SELECT number, hash, digest, 'begin', id, at, who, via, action, arguments::text, NULL, NULL FROM badged.audit
UNION ALL
SELECT number, hash, digest, 'end', audit_id, ended_at, NULL, NULL, NULL, NULL, result::text, error FROM badged.audit_ends
ORDER BY number, 4

-- name: lock the audit trail
SELECT records, pruned FROM badged.audit_chain FOR UPDATE

-- name: find the records to prune
-- Returns the last number before the first record that is too new. All records up to it are
-- older.
SELECT coalesce(min(number) - 1, $2) FROM (
    SELECT number FROM badged.audit WHERE at >= $1 UNION ALL SELECT number FROM badged.audit_ends WHERE ended_at >= $1
) AS newer

-- name: find an action that is pruned in part
SELECT coalesce(min(a.number) - 1, -1) FROM badged.audit AS a JOIN badged.audit_ends AS e ON e.audit_id = a.id WHERE a.number <= $1 AND e.number > $1

-- name: move the start of the audit trail
UPDATE badged.audit_chain SET pruned = $1, pruned_head = (
    SELECT hash FROM badged.audit WHERE number = $1 UNION ALL SELECT hash FROM badged.audit_ends WHERE number = $1
) RETURNING pruned_head

-- name: prune the audit trail
DELETE FROM badged.audit WHERE number <= $1

-- name: interrupt jobs without a lock
-- A running job holds this lock, and records its end before it releases the lock. If the job
-- ends during this statement, the update sees the new state once it has locked the row.
UPDATE badged.jobs
SET state = 'interrupted', ended_at = clock_timestamp(), error = 'the process that ran it has ended'
WHERE state = 'running' AND NOT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1 AND objid = id
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))

-- name: job
id, kind, state, arguments, started_by, started_at, process, progress, cancel_requested, ended_at, result, error

-- name: size of a job
octet_length(arguments::text) + octet_length(progress::text) + coalesce(octet_length(result::text), 0) + coalesce(octet_length(error), 0)

-- name: list jobs
SELECT {job}
FROM (SELECT *, sum({size of a job}) OVER (ORDER BY started_at DESC, id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer
      FROM (SELECT {job} FROM badged.jobs
            WHERE kind = $1 AND CASE WHEN $2::timestamptz IS NULL THEN $3::bigint = 0 OR id < $3 ELSE (started_at, id) < ($2, $3) END ORDER BY started_at DESC, id DESC LIMIT $4) AS page) AS page
WHERE coalesce(newer, 0) < $5
ORDER BY started_at DESC, id DESC

-- name: find when a job began
SELECT started_at FROM badged.jobs WHERE id = $1

-- name: find a job
SELECT {job} FROM badged.jobs WHERE kind = $1 AND id = $2

-- name: cancel a job
UPDATE badged.jobs SET cancel_requested = true WHERE kind = $1 AND id = $2 AND state = 'running' RETURNING {job}

-- name: admit one job at a time
LOCK TABLE badged.jobs IN SHARE ROW EXCLUSIVE MODE

-- name: count the jobs of a process
SELECT count(*) FROM badged.jobs WHERE state = 'running' AND process = $1

-- name: find a rebuild of partitions
SELECT id FROM badged.jobs
WHERE state = 'running' AND kind = 'rebuild' AND arguments ->> 'user' IS NULL
LIMIT 1

-- name: begin a job
INSERT INTO badged.jobs (kind, arguments, started_by, process)
VALUES ($1, $2::text::json, $3, $4) RETURNING {job}

-- name: forget old jobs
-- Deletes at most $1 ended jobs, and keeps the latest $1 of them. This statement runs whenever
-- a job begins.
DELETE FROM badged.jobs WHERE id IN (SELECT id FROM badged.jobs WHERE state <> 'running' ORDER BY id DESC OFFSET $1::integer LIMIT $1::integer)

-- name: lock a job
-- Runs before the commit that makes the row visible to other sessions.
SELECT pg_advisory_lock($1, $2)

-- name: report on a job
-- Runs in the session that holds the lock, so it also checks that this session is alive.
UPDATE badged.jobs SET progress = $2::text::json WHERE id = $1 AND state = 'running' RETURNING cancel_requested

-- name: end a job
UPDATE badged.jobs
SET state = $2, progress = $3::text::json, result = $4::text::json, error = $5, ended_at = clock_timestamp()
WHERE id = $1 AND state = 'running'

-- name: list processes
SELECT DISTINCT ON (process) process, roles, started_at, at, counted
FROM badged.samples
WHERE at > clock_timestamp() - make_interval(secs => $1)
ORDER BY process, at DESC

-- name: list samples
SELECT process, started_at, at, counted, clock_timestamp()
FROM badged.samples
WHERE at > greatest($1, clock_timestamp() - make_interval(secs => $2))
ORDER BY at

-- name: store a sample
INSERT INTO badged.samples (process, started_at, roles, counted) VALUES ($1, $2, $3, $4::text::json)

-- name: forget old samples
DELETE FROM badged.samples WHERE at < clock_timestamp() - make_interval(secs => $1)

-- name: read how far a partition is
-- Counts appended events in at most 10000 unfolded rows. If more rows are unfolded, the events
-- beyond are counted later.
SELECT folded, folded + (
    SELECT coalesce(sum(events), 0) FROM (
        SELECT events FROM badged.events_pNN
        WHERE (transaction_id, "offset") > (o.last_processed_transaction_id, o.offset_acked) AND transaction_id >= o.last_processed_transaction_id
        ORDER BY transaction_id, "offset" LIMIT 10000
    ) AS rest
) AS logged
FROM badged.events_pNN_offsets AS o WHERE consumer_group = $1

-- name: read the redactions
SELECT e.number, a.at, a.who, a.via, e.result::text FROM badged.audit AS a JOIN badged.audit_ends AS e ON e.audit_id = a.id
WHERE a.action = 'audit.redact' AND e.result IS NOT NULL ORDER BY e.number

-- name: not about the trail
action NOT IN ('audit.redact', 'audit.prune')

-- name: find records that may name a user
-- Uses the index on the words of records. Skips records about the trail itself: they name no
-- user, and an id such as "records" must not change them.
SELECT number, arguments::text, NULL FROM badged.audit
WHERE badged.words(who || '"' || arguments::text) ?| badged.words_of_user($1) AND {not about the trail}
UNION ALL
SELECT e.number, e.result::text, e.error FROM badged.audit_ends AS e JOIN badged.audit AS a ON a.id = e.audit_id
WHERE badged.words(coalesce(e.result::text, '') || '"' || coalesce(e.error, '')) ?| badged.words_of_user($1) AND {not about the trail}
ORDER BY 1

-- name: redact a beginning
UPDATE badged.audit AS a SET digest = coalesce(a.digest, badged.audit_digest(badged.audit_content(a))), arguments = $2::text::json
WHERE number = $1 RETURNING badged.audit_digest(badged.audit_content(a))

-- name: redact an end
UPDATE badged.audit_ends AS e SET digest = coalesce(e.digest, badged.audit_digest(badged.audit_content(e))), result = $2::text::json, error = $3
WHERE number = $1 RETURNING badged.audit_digest(badged.audit_content(e))
