-- Any server completes the switch of a partition whose mover was killed between the commits
-- of the two shards.

-- +goose Up

-- Makes this shard hold the partition that a move gave to it. It must only be called once
-- the source has released the partition in that move; then this shard has all rows of it.
-- It returns whether the shard holds the partition because of that move, and may be called
-- by many at once. It waits a second at most for others.
-- +goose StatementBegin
CREATE FUNCTION badged.complete_move(partition integer, move uuid) RETURNS boolean
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $$
DECLARE
    log text := badged.log_table(partition);
    m   badged.moves;
BEGIN
    SELECT * INTO m FROM badged.moves AS x WHERE x.partition_id = partition AND x.move_id = move AND x.role = 'target' FOR UPDATE;
    IF m.state IS NULL OR m.state NOT IN ('ready', 'held') THEN
        RETURN false;
    ELSIF m.state = 'held' THEN
        RETURN true;
    END IF;
    PERFORM badged.hold_partition(partition, m.revision, m.epoch);
    EXECUTE format('DROP TRIGGER IF EXISTS gate ON badged.%I', log);
    -- Nothing is due because of the move: holding has raised the revision.
    EXECUTE format('UPDATE badged.notifier_partitions AS n SET revision = o.revision FROM badged.%I AS o
        WHERE n.partition_id = $1 AND o.consumer_group = ''projector'' AND n.revision = o.revision - 1', log || '_offsets') USING partition;
    UPDATE badged.moves AS x SET state = 'held' WHERE x.partition_id = partition;
    RETURN true;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.complete_move(integer, uuid) FROM PUBLIC;
