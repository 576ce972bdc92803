-- name: owned partitions
-- pg_locks shows the advisory locks of the whole cluster, so the database is compared too.
SELECT objid::bigint::integer FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())

-- name: measure a partition
-- pg_locks shows the advisory locks of the whole cluster, so the database is compared too. $1
-- is the projector's consumer group, $2 the class of the locks, $3 the partition, $4 the
-- notifier's consumer group. MOST is replaced by the greatest number of rows to count. With a
-- parameter instead, a generic plan would expect to read a tenth of the log.
SELECT f.folded_tx, f.folded_offset, h.head_tx, h.head_offset,
       b.n + (SELECT coalesce(sum(events), 0)::bigint FROM badged.events_pNN WHERE transaction_id = ANY (f.pending)),
       coalesce(extract(epoch FROM clock_timestamp() - b.oldest), 0)::double precision,
       coalesce((SELECT a.application_name
                 FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
                 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
                   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   AND l.classid = $2 AND l.objid = $3
                 LIMIT 1), ''),
       o.tx, o.position
FROM (SELECT last_processed_transaction_id AS tx, last_processed_transaction_id::text::bigint AS folded_tx, offset_acked AS folded_offset, pending
      FROM badged.events_pNN_offsets WHERE consumer_group = $1) AS f
LEFT JOIN LATERAL (SELECT transaction_id::text::bigint AS head_tx, "offset" AS head_offset
      FROM badged.events_pNN ORDER BY transaction_id DESC, "offset" DESC LIMIT 1) AS last ON true
CROSS JOIN LATERAL (SELECT coalesce(last.head_tx, f.folded_tx) AS head_tx, coalesce(last.head_offset, f.folded_offset) AS head_offset) AS h
CROSS JOIN LATERAL (SELECT coalesce(sum(events), 0)::bigint AS n, min(created_at) FILTER (WHERE first) AS oldest
      FROM (SELECT events, created_at, row_number() OVER () = 1 AS first FROM badged.events_pNN
            WHERE (transaction_id, "offset") > (f.tx, f.folded_offset) AND transaction_id >= f.tx
            ORDER BY transaction_id, "offset" LIMIT MOST) AS rest) AS b
-- The notifier's position, only if it is behind the projector's and there are devices to
-- notify.
LEFT JOIN LATERAL (SELECT last_processed_transaction_id::text::bigint AS tx, offset_acked AS position FROM badged.events_pNN_offsets
      WHERE consumer_group = $4 AND (last_processed_transaction_id, offset_acked) < (f.tx, f.folded_offset)
        AND EXISTS (SELECT FROM badged.devices_pNN)) AS o ON true
