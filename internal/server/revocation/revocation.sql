-- Revoked tokens and users to disconnect.

-- name: end
-- The update locks the counter's row until the commit, so numbers become visible in order.
WITH counted AS (UPDATE badged.revocation_counter SET last = last + 1 RETURNING last)
INSERT INTO badged.revocations AS r (user_id, seq, revoked_before, ended_at)
SELECT $1, last, $2, now() FROM counted
ON CONFLICT (user_id) DO UPDATE SET
    seq = excluded.seq, ended_at = excluded.ended_at,
    -- greatest ignores null. A stored moment in the future, left by a wrong clock, would lock
    -- the user out until then: it is replaced by the current time.
    revoked_before = greatest(CASE WHEN r.revoked_before > clock_timestamp() THEN clock_timestamp() ELSE r.revoked_before END, excluded.revoked_before)
RETURNING revoked_before

-- name: database
-- The last number, a name for this life of the database, and the secret. The name differs
-- after a failover (timeline), after a restart of Postgres, and after the restore of a dump
-- (tableoid).
c.last, left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text || '/' || c.tableoid::text, s.secret

-- name: one row
-- These tables are never analyzed: without the limits, plans expect thousands of rows.
(SELECT last, tableoid FROM badged.revocation_counter LIMIT 1) AS c CROSS JOIN (SELECT secret FROM badged.revocation_secret LIMIT 1) AS s

-- name: read newer
-- The next rows after a number.
SELECT {database}, r.seq, r.user_id, r.revoked_before, r.digest
FROM {one row} LEFT JOIN (
    (SELECT seq, user_id, revoked_before, NULL::bytea AS digest FROM badged.revocations WHERE seq > $1 ORDER BY seq LIMIT $2)
    UNION ALL
    (SELECT seq, NULL, revoked_before, digest FROM badged.erased_revocations WHERE seq > $1 ORDER BY seq LIMIT $2)
    ORDER BY seq LIMIT $2
) AS r ON true
ORDER BY r.seq

-- name: read older
-- The next rows up to a number, the latest first.
SELECT {database}, r.seq, r.user_id, r.revoked_before, r.digest
FROM {one row} LEFT JOIN (
    (SELECT seq, user_id, revoked_before, NULL::bytea AS digest FROM badged.revocations WHERE seq <= $1 ORDER BY seq DESC LIMIT $2)
    UNION ALL
    (SELECT seq, NULL, revoked_before, digest FROM badged.erased_revocations WHERE seq <= $1 ORDER BY seq DESC LIMIT $2)
    ORDER BY seq DESC LIMIT $2
) AS r ON true
ORDER BY r.seq DESC

-- name: hold up revocations
-- Every writer of revocations updates this row first. With this lock, the deletions that
-- follow wait for no other row lock.
SELECT last FROM badged.revocation_counter FOR UPDATE

-- name: forget
-- Deletes the oldest rows if they revoke tokens that have expired. The array makes every plan
-- look up the oldest rows by key, even a plan without an estimate of their number.
DELETE FROM badged.revocations
WHERE user_id = ANY (ARRAY(SELECT user_id FROM badged.revocations ORDER BY seq LIMIT $2)) AND ended_at < now() - make_interval(secs => $1)

-- name: forget the ended
-- Deletes the oldest rows that revoke no tokens, once every process has read them.
DELETE FROM badged.revocations
WHERE user_id = ANY (ARRAY(SELECT user_id FROM badged.revocations WHERE revoked_before IS NULL ORDER BY seq LIMIT $2)) AND ended_at < now() - make_interval(secs => $1)

-- name: forget the erased
-- Deletes the oldest rows of erased users if their tokens have expired.
DELETE FROM badged.erased_revocations
WHERE digest = ANY (ARRAY(SELECT digest FROM badged.erased_revocations ORDER BY seq LIMIT $2)) AND revoked_before < now() - make_interval(secs => $1)
