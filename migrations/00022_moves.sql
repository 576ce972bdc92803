-- Moving a partition from one shard to another while both serve.
--
-- While a partition is being moved, triggers on its tables note which rows change: the
-- mover copies them again. They also are a gate. The mover closes it for the moment in
-- which the other shard takes over, by locks that end with its session. The triggers
-- stay when the partition has gone, and refuse writers that have not heard of it.

-- +goose Up

-- A move of a partition, on the shard that has it and on the one that gets it.
CREATE TABLE badged.moves (
    partition_id   smallint PRIMARY KEY,
    -- The same on both shards.
    move_id        uuid        NOT NULL,
    role           text        NOT NULL CHECK (role IN ('source', 'target')),
    source         text        NOT NULL COLLATE "C",
    target         text        NOT NULL COLLATE "C",
    -- Of the map, when the move is done.
    revision       bigint      NOT NULL,
    -- Of the source: copying, then released. Of the target: copying, copied while changes
    -- follow, ready when it has everything, then held.
    state          text        NOT NULL CHECK (state IN ('copying', 'copied', 'ready', 'released', 'held')),
    -- Of the target: the last row of the source's log that it has, and how many it has.
    -- They are numbers, not transaction ids of this database.
    copied_id      bigint      NOT NULL DEFAULT 0,
    copied_offset  bigint      NOT NULL DEFAULT 0,
    copied_rows    bigint      NOT NULL DEFAULT 0,
    -- Of the partition, once the target is ready.
    epoch          text,
    begun_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Rows of the partition that have changed since the move began: those of a table, which
-- is named without the partition, that have a key. Without a key, any of them.
CREATE TABLE badged.move_changes (
    number       bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id smallint NOT NULL,
    kind         text     NOT NULL COLLATE "C",
    key          text[]   NOT NULL COLLATE "C"
);

-- On the target: which places of the source's log, in its tables, are which row here.
CREATE TABLE badged.move_places (
    partition_id  smallint NOT NULL,
    -- Of the source.
    source_id     bigint   NOT NULL,
    source_offset bigint   NOT NULL,
    -- The offset here of the last row up to there, and whether a row is there.
    place         bigint   NOT NULL,
    is_row        boolean  NOT NULL,
    PRIMARY KEY (partition_id, source_id, source_offset)
);

-- Waits while the gate of a partition is closed, and fails if the partition is on another
-- shard then. Whoever passes keeps the gate open until the transaction ends. It does
-- nothing for the mover, whose session says which partition it moves.
-- +goose StatementBegin
CREATE FUNCTION badged.pass_gate(class integer, partition integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('badged.moving', true) = partition::text THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(class, partition);
    IF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM FROM badged.partitions WHERE partition_id = partition;
    ELSE
        -- An older snapshot shows the row also when it has gone. Locking it fails then.
        PERFORM FROM badged.partitions WHERE partition_id = partition FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'partition % is not on this shard, but on %', partition,
                coalesce((SELECT m.shard FROM badged.shard_partitions AS m WHERE m.partition_id = partition), 'another')
            USING ERRCODE = 'BD100', CONSTRAINT = 'not_held', HINT = 'Publish to badged, which knows the shards.';
    END IF;
END
$$;
-- +goose StatementEnd

-- On the log of a partition, for publishers. The folding of what they have appended goes
-- on while this gate is closed.
-- +goose StatementBegin
CREATE FUNCTION badged.gate_appends() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM badged.pass_gate(1650552167, TG_ARGV[0]::integer); -- "bamg"
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Makes the table changed note changes of rows of a partition, and wait for the gate. kind
-- is its name without the partition, shared is set if it has the rows of all partitions,
-- and key has the columns that name a row; without any, only that something has changed is
-- noted.
--
-- Each kind has a function of its own, since PL/pgSQL keeps the plans of static
-- statements.
-- +goose StatementBegin
CREATE FUNCTION badged.watch_changes(partition integer, changed text, kind text, shared boolean, key text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    row_key CONSTANT text := 'ARRAY[' || (SELECT coalesce(string_agg(format('ROW.%I::text', k), ', '), '') FROM unnest(key) AS k) || ']::text[]';
BEGIN
    EXECUTE format($f$
        CREATE OR REPLACE FUNCTION badged.%I() RETURNS trigger
            LANGUAGE plpgsql
            SECURITY DEFINER SET search_path = pg_catalog, pg_temp
        AS $b$
#variable_conflict use_variable
DECLARE
    moved CONSTANT integer := %s;
BEGIN
    IF moved IS NULL THEN
        RETURN NULL; -- of no partition
    END IF;
    PERFORM badged.pass_gate(1650552183, moved); -- "bamw"
    IF current_setting('badged.moving', true) = moved::text
        OR NOT EXISTS (SELECT FROM badged.moves AS m WHERE m.partition_id = moved AND m.role = 'source') THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO badged.move_changes (partition_id, kind, key) VALUES (moved, %L, %s);
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO badged.move_changes (partition_id, kind, key) VALUES (moved, %3$L, %5$s);
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO badged.move_changes (partition_id, kind, key) SELECT moved, %3$L, %5$s WHERE %5$s <> %4$s;
    END IF;
    RETURN NULL;
END
$b$
    $f$, 'note_' || kind,
        CASE WHEN shared THEN 'CASE TG_OP WHEN ''DELETE'' THEN OLD.partition_id ELSE NEW.partition_id END' ELSE 'TG_ARGV[0]' END,
        kind, replace(row_key, 'ROW.', 'OLD.'), replace(row_key, 'ROW.', 'NEW.'));
    EXECUTE format('REVOKE ALL ON FUNCTION badged.%I() FROM PUBLIC', 'note_' || kind);
    EXECUTE format('CREATE OR REPLACE TRIGGER moving AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION badged.%I(%s)',
        changed::regclass, 'note_' || kind, CASE WHEN NOT shared THEN partition::text END);
END
$$;
-- +goose StatementEnd

-- On the log: the text of an event was taken out.
-- +goose StatementBegin
CREATE FUNCTION badged.note_erased() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO badged.move_changes (partition_id, kind, key) SELECT m.partition_id, 'events', '{}'
    FROM badged.moves AS m WHERE m.partition_id = TG_ARGV[0]::smallint AND m.role = 'source';
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Ends holding a partition as release_partition does, while the caller keeps its gates
-- closed. It waits for no lock that a publisher has who waits at the gate, and deletes no
-- rows.
-- +goose StatementBegin
CREATE FUNCTION badged.release_moved_partition(partition integer, shard text, revision bigint) RETURNS text
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    was text;
BEGIN
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''', badged.log_table(partition) || '_offsets');
    DELETE FROM badged.partitions AS p WHERE p.partition_id = partition RETURNING p.epoch INTO was;
    PERFORM badged.map_partition(partition, shard, revision);
    RETURN was;
END
$$;
-- +goose StatementEnd

-- The letters of a partition that another shard sends are known already, with what is to
-- be told of them.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.tell_of_dead_letters() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO badged.webhook_queue (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
    SELECT coalesce(b.partition_id, 0), w.name, 'deadletter.buried', b.id::text, clock_timestamp(), clock_timestamp(), 1, 0
    FROM buried AS b, badged.webhooks AS w
    WHERE 'deadletter.buried' = ANY (w.events) AND w.state <> 'disabled'
      AND b.partition_id IS DISTINCT FROM nullif(current_setting('badged.moving', true), '')::integer;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.pass_gate(integer, integer), badged.gate_appends(), badged.note_erased(), badged.watch_changes(integer, text, text, boolean, text[]),
    badged.release_moved_partition(integer, text, bigint) FROM PUBLIC;
