-- Statements for archiving and restoring. pNN stands for a partition, and RANGE for the log
-- with the bounds of one range. PAYLOAD is the payload of a row, unless it is too large.

-- name: read the identity of the log
-- Also counts the archived files of the partitions that the shard holds. A move to the shard
-- copies rows about archived files before the shard holds the partition: these rows do not count.
SELECT log_id, (SELECT count(*) FROM badged.archived_files JOIN badged.partitions USING (partition_id)) FROM badged.log_identity

-- name: list the ranges
SELECT number, starts::text::bigint, coalesce(ends::text::bigint, 0), 0, now(),
    ends <= pg_snapshot_xmin(pg_current_snapshot())::text::xid8
FROM badged.log_ranges WHERE partition_id = $1 ORDER BY number

-- name: measure a range
SELECT coalesce(sum(events), 0)::bigint, max(created_at) FROM RANGE AND (transaction_id, "offset") > ($1::bigint::text::xid8, $2)

-- name: find a consumer group that has not read a range
-- Also returns the projector if it has not folded late events of the range. The notifier's
-- group is ignored while there are no devices: it reads nothing then, and need not run. Each
-- webhook about users is a consumer group of its own.
SELECT consumer_group FROM badged.events_pNN_offsets AS o
WHERE (EXISTS (SELECT FROM RANGE AND (transaction_id, "offset") > (o.last_processed_transaction_id, coalesce(o.offset_acked, 0)))
       OR EXISTS (SELECT FROM RANGE AND log.transaction_id = ANY (o.pending)))
  AND (o.consumer_group <> 'badged_notifier' OR EXISTS (SELECT FROM badged.devices_pNN))
ORDER BY consumer_group LIMIT 1

-- name: read a page of a range
SELECT transaction_id::text::bigint, "offset", uuid::text, PAYLOAD, coalesce(octet_length(payload), 0), metadata::text, created_at, own
FROM RANGE AND (transaction_id, "offset") > ($1::bigint::text::xid8, $2)
ORDER BY log.transaction_id, log."offset"
LIMIT $3

-- name: store the baseline
INSERT INTO badged.baselines (partition_id, transaction_id, "offset", generation, events, appended_until)
VALUES ($1, $2::bigint::text::xid8, $3, $4, $5, $6)
ON CONFLICT (partition_id) DO UPDATE
SET transaction_id = excluded.transaction_id, "offset" = excluded."offset", generation = excluded.generation,
    events = excluded.events, appended_until = excluded.appended_until

-- name: record an archived file
INSERT INTO badged.archived_files (partition_id, number, range, events, sha256) VALUES ($1, $2, $3, $4, $5)

-- name: load keys
COPY badged.keys_pNN_baseline_next (key, generation, users) FROM STDIN

-- name: has a partition had events
SELECT EXISTS (SELECT FROM badged.events_pNN) OR EXISTS (SELECT FROM badged.baselines WHERE partition_id = $1)

-- name: give up archived files
UPDATE badged.archived_files SET given_up = now() WHERE partition_id = $1 AND number = ANY ($2) AND given_up IS NULL

-- name: read what was given up
SELECT partition_id::integer, count(*)::integer, sum(events)::bigint
FROM badged.archived_files JOIN badged.partitions USING (partition_id) WHERE given_up IS NOT NULL
GROUP BY partition_id ORDER BY partition_id

-- name: list the archived files
SELECT partition_id::integer, number FROM badged.archived_files JOIN badged.partitions USING (partition_id)
WHERE given_up IS NULL ORDER BY partition_id, number
