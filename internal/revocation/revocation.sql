-- Revoked tokens and users to disconnect.

-- name: end
-- The lock of the counter's row is held until the commit, so numbers commit in order.
WITH counted AS (UPDATE badged.revocation_counter SET last = last + 1 RETURNING last)
INSERT INTO badged.revocations AS r (user_id, seq, revoked_before, ended_at)
SELECT $1, last, $2, now() FROM counted
ON CONFLICT (user_id) DO UPDATE SET
    seq = excluded.seq, ended_at = excluded.ended_at,
    -- Of two, null is ignored. A moment in the future, which a wrong clock has left, would
    -- lock the user out until then.
    revoked_before = greatest(CASE WHEN r.revoked_before > clock_timestamp() THEN clock_timestamp() ELSE r.revoked_before END, excluded.revoked_before)
RETURNING revoked_before

-- name: read what is new
SELECT c.last, r.seq, r.user_id, r.revoked_before, r.digest
FROM badged.revocation_counter AS c LEFT JOIN (
    SELECT seq, user_id, revoked_before, NULL::bytea AS digest FROM badged.revocations WHERE seq > $1
    UNION ALL
    SELECT seq, NULL, revoked_before, digest FROM badged.erased_revocations WHERE seq > $1
) AS r ON true

-- name: read the secret
SELECT secret FROM badged.revocation_secret

-- name: forget the erased
DELETE FROM badged.erased_revocations WHERE revoked_before < now() - make_interval(secs => $1)

-- name: forget
DELETE FROM badged.revocations WHERE revoked_before IS NULL AND ended_at < now() - make_interval(secs => $1)
