-- Partitions spread over several databases, the shards of a cluster. Every shard has
-- the tables of all partitions; those of partitions that it does not hold are empty. A
-- shard holds a partition if badged.partitions has its row.

-- +goose Up

-- Up to 1,024 partitions.
ALTER TABLE badged.settings DROP CONSTRAINT settings_partitions_check;
ALTER TABLE badged.settings ADD CONSTRAINT settings_partitions_check CHECK (partitions BETWEEN 1 AND 1024);

-- Which shard of which cluster this database is. Without a row it is not part of a
-- cluster, and holds all partitions.
CREATE TABLE badged.shard (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    cluster   uuid NOT NULL,
    name      text NOT NULL COLLATE "C",
    -- When all shards of the first map were known to have it. Until then making the
    -- cluster may have been interrupted, and goes on; after it, a shard without a row
    -- has lost its data.
    formed_at timestamptz
);

-- What this shard knows of the map: which shard holds each partition. The revision
-- counts the moves of the partition; among all shards, the entry with the greatest
-- revision is true.
CREATE TABLE badged.shard_partitions (
    partition_id smallint PRIMARY KEY,
    shard        text   NOT NULL COLLATE "C",
    revision     bigint NOT NULL CHECK (revision > 0)
);

-- Whether the database has anything of publishers or users.
-- +goose StatementBegin
CREATE FUNCTION badged.is_used() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    used boolean := EXISTS (SELECT FROM badged.devices) OR EXISTS (SELECT FROM badged.revocations) OR EXISTS (SELECT FROM badged.dead_letters);
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        EXIT WHEN used;
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I) OR EXISTS (SELECT FROM badged.%I WHERE folded > 0)',
            badged.log_table(p), badged.log_table(p) || '_offsets') INTO used;
    END LOOP;
    RETURN used;
END
$$;
-- +goose StatementEnd

-- Puts an entry into this shard's copy of the map, unless it has one that is as new.
-- +goose StatementBegin
CREATE FUNCTION badged.map_partition(partition integer, shard text, revision bigint) RETURNS void
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO badged.shard_partitions AS m (partition_id, shard, revision) VALUES (partition, shard, revision)
    ON CONFLICT (partition_id) DO UPDATE SET shard = excluded.shard, revision = excluded.revision
    WHERE m.revision < excluded.revision;
END;
-- +goose StatementEnd

-- Refuses to append to a partition that is on another shard. Only the logs of these
-- partitions have the trigger, so that it costs others nothing.
-- +goose StatementBegin
CREATE FUNCTION badged.refuse_not_held() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'partition % is not on this shard, but on %', TG_ARGV[0],
            coalesce((SELECT m.shard FROM badged.shard_partitions AS m WHERE m.partition_id = TG_ARGV[0]::integer), 'another')
        USING ERRCODE = 'BD100', CONSTRAINT = 'not_held', HINT = 'Publish to badged, which knows the shards.';
END
$$;
-- +goose StatementEnd

-- Ends holding a partition: another shard gets it, at a revision of the map. It waits
-- for transactions that have appended to the partition, and for its batch. From its
-- commit on, appends are refused and no batch commits. Returns the epoch, null if this
-- shard did not hold the partition. The rows of the partition stay, but for those that
-- lead messages of rooms to it.
-- +goose StatementBegin
CREATE FUNCTION badged.release_partition(partition integer, shard text, revision bigint) RETURNS text
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    log     text := badged.log_table(partition);
    was     text;
BEGIN
    EXECUTE format('LOCK TABLE ONLY badged.%I IN SHARE ROW EXCLUSIVE MODE', log);
    -- The fence of batches.
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''', log || '_offsets');
    EXECUTE format('CREATE OR REPLACE TRIGGER not_held BEFORE INSERT ON badged.%I FOR EACH STATEMENT EXECUTE FUNCTION badged.refuse_not_held(%s)',
        log, partition);
    DELETE FROM badged.partitions AS p WHERE p.partition_id = partition RETURNING p.epoch INTO was;
    PERFORM badged.map_partition(partition, shard, revision);
    RETURN was;
END
$$;
-- +goose StatementEnd

-- Begins holding a partition at a revision of the map, with the epoch that it had
-- elsewhere: the rows that go with it are there.
-- +goose StatementBegin
CREATE FUNCTION badged.hold_partition(partition integer, revision bigint, epoch text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    log text := badged.log_table(partition);
BEGIN
    IF NOT EXISTS (SELECT FROM badged.shard) THEN
        RAISE EXCEPTION 'this database is not a shard' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    EXECUTE format('DROP TRIGGER IF EXISTS not_held ON badged.%I', log);
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''', log || '_offsets');
    INSERT INTO badged.partitions (partition_id, epoch, incarnation)
    VALUES (partition, epoch, left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text);
    PERFORM badged.map_partition(partition, s.name, revision) FROM badged.shard AS s;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.is_used(), badged.map_partition(integer, text, bigint), badged.release_partition(integer, text, bigint),
    badged.hold_partition(integer, bigint, text), badged.refuse_not_held() FROM PUBLIC;
