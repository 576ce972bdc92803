-- Statements about the owner of an archive, and about erasures.

-- name: read the identity
-- The third column reports whether the database made the claim $1.
SELECT log_id, (SELECT partitions FROM badged.settings), EXISTS (SELECT FROM badged.archive_claims WHERE claim = $1),
    coalesce((SELECT era FROM badged.log_home), 0), (SELECT oid FROM pg_database WHERE datname = current_database()),
    coalesce((SELECT cluster::text FROM badged.shard), ''), clock_timestamp()
FROM badged.log_identity

-- name: claim the archive
INSERT INTO badged.archive_claims (claim) VALUES ($1)

-- name: find erasures that are not complete
SELECT number - 1 FROM unnest($1::uuid[]) WITH ORDINALITY AS known (id, number)
WHERE NOT EXISTS (SELECT FROM badged.erasures AS e WHERE e.id = known.id)
ORDER BY number

-- name: complete an erasure
INSERT INTO badged.erasures (id) VALUES ($1) ON CONFLICT DO NOTHING

-- name: read the secret
SELECT secret FROM badged.revocation_secret LIMIT 1
