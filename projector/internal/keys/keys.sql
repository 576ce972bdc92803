-- What is remembered of folded events. pNN stands for a partition.

-- name: add a block
INSERT INTO badged.dedup_blocks_pNN (generation, entries) VALUES ($1, $2)

-- name: add blocks
INSERT INTO badged.dedup_blocks_pNN (generation, entries) SELECT $1, unnest($2::bytea[])

-- name: look up prefixes
-- The page of each run that has a prefix if any has. A run that is not live any
-- more gives no row: its pages may be gone.
SELECT k.run, k.prefix,
    (SELECT p.entries FROM badged.dedup_pages_pNN AS p WHERE p.run = k.run AND p.first <= k.prefix ORDER BY p.first DESC LIMIT 1)
FROM (SELECT unnest($2::bigint[]) AS run, unnest($3::bigint[]) AS prefix) AS k
JOIN badged.dedup_runs AS r ON r.partition_id = $1 AND r.run = k.run AND r.state = 'live'

-- name: load the blocks
SELECT generation, entries FROM badged.dedup_blocks_pNN WHERE generation >= $1

-- name: load the runs
-- With their filters, the youngest first, as far as these fit into $3 bytes.
SELECT run, r.generation, r.entries, f.first, f.entries,
    CASE WHEN sum(octet_length(f.filter)) OVER (ORDER BY r.generation DESC, run DESC, f.first ROWS UNBOUNDED PRECEDING) <= $3 THEN f.filter END
FROM badged.dedup_runs AS r LEFT JOIN badged.dedup_filters AS f USING (partition_id, run)
WHERE partition_id = $1 AND r.state = 'live' AND r.generation >= $2
ORDER BY r.generation DESC, run DESC, f.first

-- name: take blocks
-- About $1 bytes of them. Of two projectors that merge the same blocks, one takes
-- each.
DELETE FROM badged.dedup_blocks_pNN WHERE ctid = ANY (ARRAY(
    SELECT place
    FROM (SELECT ctid AS place, sum(octet_length(entries)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(entries) AS ahead
          FROM badged.dedup_blocks_pNN) AS b
    WHERE ahead < $1))
RETURNING generation, entries

-- name: begin a run
-- The time is a number that no other run of the partition has had.
INSERT INTO badged.dedup_runs (partition_id, run, generation, state)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2, 'building')
RETURNING run

-- name: extend a run
-- Fails to find the run if another projector has given it up.
UPDATE badged.dedup_runs SET entries = entries + $3 WHERE partition_id = $1 AND run = $2 AND state = 'building'

-- name: add pages
INSERT INTO badged.dedup_pages_pNN (run, first, entries) SELECT $1, unnest($2::bigint[]), unnest($3::bytea[])

-- name: add a filter
INSERT INTO badged.dedup_filters (partition_id, run, first, entries, filter) VALUES ($1, $2, $3, $4, $5)

-- name: read pages
SELECT first, entries FROM badged.dedup_pages_pNN WHERE run = $1 AND first >= $2 ORDER BY first LIMIT $3

-- name: replace runs
-- Both numbers are right unless another projector has merged one of the runs.
WITH replaced AS (
    UPDATE badged.dedup_runs SET state = 'dropped' WHERE partition_id = $1 AND run = ANY ($2::bigint[]) AND state = 'live' RETURNING 1
), finished AS (
    UPDATE badged.dedup_runs SET state = 'live' WHERE partition_id = $1 AND run = $3 AND state = 'building' RETURNING 1
)
SELECT (SELECT count(*) FROM replaced), (SELECT count(*) FROM finished)

-- name: give up runs
-- Those of expired generations, and those that a projector has not finished.
UPDATE badged.dedup_runs SET state = 'dropped'
WHERE partition_id = $1 AND (state = 'building' OR state = 'live' AND generation < $2)

-- name: drop expired blocks
DELETE FROM badged.dedup_blocks_pNN WHERE generation < $1

-- name: list dropped runs
SELECT run FROM badged.dedup_runs WHERE partition_id = $1 AND state = 'dropped'

-- name: drop pages
DELETE FROM badged.dedup_pages_pNN WHERE ctid = ANY (ARRAY(SELECT ctid FROM badged.dedup_pages_pNN WHERE run = $1 LIMIT $2))

-- name: drop filters
DELETE FROM badged.dedup_filters WHERE partition_id = $1 AND run = $2

-- name: drop a run
DELETE FROM badged.dedup_runs WHERE partition_id = $1 AND run = $2 AND state = 'dropped'

-- name: keep merges away
-- The first waits for a merge of blocks, and the second for a step of any merge of runs.
-- Every transaction that writes both tables begins with the blocks.
LOCK TABLE badged.dedup_blocks_pNN IN EXCLUSIVE MODE; LOCK TABLE badged.dedup_runs IN EXCLUSIVE MODE

-- name: give up merges
UPDATE badged.dedup_runs SET state = 'dropped' WHERE partition_id = $1 AND state = 'building'

-- name: read blocks to erase from
SELECT ctid, entries FROM badged.dedup_blocks_pNN

-- name: replace a block
UPDATE badged.dedup_blocks_pNN SET entries = $2 WHERE ctid = $1

-- name: find pages
-- All that may have one of the prefixes.
SELECT DISTINCT r.run, p.first, p.entries
FROM badged.dedup_runs AS r, unnest($2::bigint[]) AS k (prefix), LATERAL (
    SELECT first, entries FROM badged.dedup_pages_pNN AS p WHERE p.run = r.run AND p.first <= k.prefix ORDER BY p.first DESC LIMIT 1
) AS p
WHERE r.partition_id = $1 AND r.state = 'live'

-- name: replace a page
UPDATE badged.dedup_pages_pNN SET entries = $3 WHERE run = $1 AND first = $2
