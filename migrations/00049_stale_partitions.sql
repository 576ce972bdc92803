-- A shard that was restored from before it gave a partition away gives it up again, with what
-- was published to it meanwhile.

-- +goose Up

-- When this copy of the map got the entry: on the shard that holds the partition, when it
-- began to. All that its log had before on another shard has come with it.
ALTER TABLE badged.shard_partitions ADD COLUMN since timestamptz NOT NULL DEFAULT clock_timestamp();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.map_partition(partition integer, shard text, revision bigint) RETURNS void
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO badged.shard_partitions AS m (partition_id, shard, revision) VALUES (partition, shard, revision)
    ON CONFLICT (partition_id) DO UPDATE SET shard = excluded.shard, revision = excluded.revision, since = excluded.since
    WHERE m.revision < excluded.revision;
END;
-- +goose StatementEnd

-- Partitions that this shard has given up and whose last events the other shard lacks.
CREATE TABLE badged.stale_partitions (
    partition_id smallint    PRIMARY KEY,
    -- The other shard, and since when it holds the partition.
    owner        text        NOT NULL COLLATE "C",
    since        timestamptz NOT NULL,
    given_up_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Gives up a partition that another shard holds at a later revision of the map than this
-- one: this database was restored from before it gave the partition away. From its commit
-- on, appends are refused. Returns whether this shard held it. It waits a second at most
-- for transactions that have appended to it.
-- +goose StatementBegin
CREATE FUNCTION badged.give_up_partition(partition integer, owner text, revision bigint, since timestamptz) RETURNS boolean
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $$
BEGIN
    PERFORM FROM badged.partitions AS p WHERE p.partition_id = partition FOR UPDATE;
    IF NOT FOUND OR owner = (SELECT s.name FROM badged.shard AS s)
        OR revision <= (SELECT m.revision FROM badged.shard_partitions AS m WHERE m.partition_id = partition AND m.shard <> owner) THEN
        RETURN false;
    END IF;
    INSERT INTO badged.stale_partitions (partition_id, owner, since)
    VALUES (partition, owner, since)
    ON CONFLICT (partition_id) DO UPDATE SET owner = excluded.owner, since = least(stale_partitions.since, excluded.since);
    PERFORM badged.release_partition(partition, owner, revision);
    RETURN true;
END
$$;
-- +goose StatementEnd

-- Notes that the other shard has the last events of a partition that was given up. The rows
-- stay, as after a move that did not delete them.
-- +goose StatementBegin
CREATE FUNCTION badged.settle_stale_partition(partition integer) RETURNS void
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO badged.moves (partition_id, move_id, role, source, target, revision, state)
    SELECT s.partition_id, gen_random_uuid(), 'source', (SELECT name FROM badged.shard), s.owner, 0, 'released'
    FROM badged.stale_partitions AS s WHERE s.partition_id = partition
    ON CONFLICT (partition_id) DO UPDATE SET move_id = excluded.move_id, role = excluded.role, source = excluded.source, target = excluded.target,
        revision = excluded.revision, state = excluded.state, epoch = NULL, round = NULL;
    DELETE FROM badged.stale_partitions AS s WHERE s.partition_id = partition;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.give_up_partition(integer, text, bigint, timestamptz), badged.settle_stale_partition(integer) FROM PUBLIC;
