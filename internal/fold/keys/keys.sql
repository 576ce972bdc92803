-- Statements on event keys, which record the users who have had each event. pNN is replaced by
-- the number of a partition.

-- name: add a block
INSERT INTO badged.dedup_blocks_pNN (generation, entries) VALUES ($1, $2)

-- name: add blocks
INSERT INTO badged.dedup_blocks_pNN (generation, entries) SELECT $1, unnest($2::bytea[])

-- name: look up prefixes
-- Returns for each run and prefix the only page of the run that can contain the prefix.
-- Returns no row for a run that is no longer live, since its pages may already be deleted.
SELECT k.run, k.prefix,
    (SELECT p.entries FROM badged.dedup_pages_pNN AS p WHERE p.run = k.run AND p.first <= k.prefix ORDER BY p.first DESC LIMIT 1)
FROM (SELECT unnest($2::bigint[]) AS run, unnest($3::bigint[]) AS prefix) AS k
JOIN badged.dedup_runs AS r ON r.partition_id = $1 AND r.run = k.run AND r.state = 'live'

-- name: load the blocks
SELECT generation, entries FROM badged.dedup_blocks_pNN WHERE generation >= $1

-- name: load the runs
-- Returns the live runs with their filters, the youngest run first. Returns filters of at most
-- $3 bytes in all, and NULL in place of the other filters.
SELECT run, r.generation, r.entries, f.first, f.entries,
    CASE WHEN sum(octet_length(f.filter)) OVER (ORDER BY r.generation DESC, run DESC, f.first ROWS UNBOUNDED PRECEDING) <= $3 THEN f.filter END
FROM badged.dedup_runs AS r LEFT JOIN badged.dedup_filters AS f USING (partition_id, run)
WHERE partition_id = $1 AND r.state = 'live' AND r.generation >= $2
ORDER BY r.generation DESC, run DESC, f.first

-- name: take blocks
-- Deletes blocks of about $1 bytes in all and returns them. If two projectors merge blocks at
-- the same time, each block is returned to one of them.
DELETE FROM badged.dedup_blocks_pNN WHERE ctid = ANY (ARRAY(
    SELECT place
    FROM (SELECT ctid AS place, sum(octet_length(entries)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(entries) AS ahead
          FROM badged.dedup_blocks_pNN) AS b
    WHERE ahead < $1))
RETURNING generation, entries

-- name: begin a run
-- The number of the run is the time in microseconds, so no other run of the partition has had
-- it.
INSERT INTO badged.dedup_runs (partition_id, run, generation, state)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2, 'building')
RETURNING run

-- name: extend a run
-- Updates no row if another projector has abandoned the run.
UPDATE badged.dedup_runs SET entries = entries + $3 WHERE partition_id = $1 AND run = $2 AND state = 'building'

-- name: add pages
INSERT INTO badged.dedup_pages_pNN (run, first, entries) SELECT $1, unnest($2::bigint[]), unnest($3::bytea[])

-- name: add a filter
INSERT INTO badged.dedup_filters (partition_id, run, first, entries, filter) VALUES ($1, $2, $3, $4, $5)

-- name: read pages
SELECT first, entries FROM badged.dedup_pages_pNN WHERE run = $1 AND first >= $2 ORDER BY first LIMIT $3

-- name: replace runs
-- Makes run $3 live and drops the runs $2, its inputs. Returns how many of the inputs were
-- live, and whether run $3 was unfinished (1 or 0). The results are lower if another projector
-- has merged or abandoned one of the runs.
WITH replaced AS (
    UPDATE badged.dedup_runs SET state = 'dropped' WHERE partition_id = $1 AND run = ANY ($2::bigint[]) AND state = 'live' RETURNING 1
), finished AS (
    UPDATE badged.dedup_runs SET state = 'live' WHERE partition_id = $1 AND run = $3 AND state = 'building' RETURNING 1
)
SELECT (SELECT count(*) FROM replaced), (SELECT count(*) FROM finished)

-- name: give up runs
-- Drops the runs of expired generations, and unfinished runs.
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
-- The first lock blocks until a merge of blocks has ended, the second until the current step
-- of any merge of runs has ended. Their order prevents deadlocks: every transaction that
-- writes both tables writes the blocks first.
LOCK TABLE badged.dedup_blocks_pNN IN EXCLUSIVE MODE; LOCK TABLE badged.dedup_runs IN EXCLUSIVE MODE

-- name: give up merges
UPDATE badged.dedup_runs SET state = 'dropped' WHERE partition_id = $1 AND state = 'building'

-- name: read blocks to erase from
SELECT ctid, entries FROM badged.dedup_blocks_pNN

-- name: replace a block
UPDATE badged.dedup_blocks_pNN SET entries = $2 WHERE ctid = $1

-- name: find pages
-- Returns every page that may contain one of the prefixes.
SELECT DISTINCT r.run, p.first, p.entries
FROM badged.dedup_runs AS r, unnest($2::bigint[]) AS k (prefix), LATERAL (
    SELECT first, entries FROM badged.dedup_pages_pNN AS p WHERE p.run = r.run AND p.first <= k.prefix ORDER BY p.first DESC LIMIT 1
) AS p
WHERE r.partition_id = $1 AND r.state = 'live'

-- name: replace a page
UPDATE badged.dedup_pages_pNN SET entries = $3 WHERE run = $1 AND first = $2
