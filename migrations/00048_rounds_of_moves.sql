-- A shard that lost its last transactions, by a failover or a restore, takes no part in a
-- move as if it had them.

-- +goose Up

-- Which round of copying is the last that the shard has, on both shards of a move. The source
-- commits it after all that the round has read, and the target with all that it has
-- written. So the two are equal only if the target has what the source had in that round,
-- and neither has lost any of it. Null before the first round.
ALTER TABLE badged.moves ADD COLUMN round uuid;

-- Makes this shard hold the partition that a move gave to it. It must only be called once
-- the source has released the partition in that round of that move; then this shard has all
-- rows of it, unless it has lost the round. It returns whether the shard holds the partition
-- because of that move, and may be called by many at once. It waits a second at most for
-- others.
-- +goose StatementBegin
CREATE FUNCTION badged.complete_move(partition integer, move uuid, round uuid) RETURNS boolean
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $$
DECLARE
    log text := badged.log_table(partition);
    m   badged.moves;
BEGIN
    SELECT * INTO m FROM badged.moves AS x
    WHERE x.partition_id = partition AND x.move_id = move AND x.role = 'target' AND x.round IS NOT DISTINCT FROM complete_move.round FOR UPDATE;
    IF m.state IS NULL OR m.state NOT IN ('ready', 'held') THEN
        RETURN false;
    ELSIF m.state = 'held' THEN
        RETURN true;
    ELSIF m.revision < (SELECT s.revision FROM badged.shard_partitions AS s WHERE s.partition_id = partition) THEN
        RETURN false; -- it has moved on since, as another shard has told
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

-- As servers call it that are older. They complete only moves of commands that are older.
CREATE OR REPLACE FUNCTION badged.complete_move(partition integer, move uuid) RETURNS boolean
    LANGUAGE sql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN badged.complete_move(partition, move, NULL);

-- Makes the source of a move hold the partition again that it has released to a shard that
-- does not have all of it any more. The rows are still there. What clients hold may be from
-- the other shard, so another epoch begins. The move goes on as before the switch.
-- +goose StatementBegin
CREATE FUNCTION badged.take_back_partition(partition integer, revision bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM badged.moves AS m WHERE m.partition_id = partition AND m.role = 'source' AND m.state = 'released' AND m.target <> '' FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this shard has not released partition % in a move whose rows it still has', partition USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM badged.hold_partition(partition, revision, substr(replace(gen_random_uuid()::text, '-', ''), 1, 12));
    UPDATE badged.moves AS m SET state = 'copying', round = NULL WHERE m.partition_id = partition;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.complete_move(integer, uuid, uuid), badged.take_back_partition(integer, bigint) FROM PUBLIC;
