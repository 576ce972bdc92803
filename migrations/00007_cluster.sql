-- Shards: which of them holds a partition, how partitions move between them, and how they are split.

-- +goose Up
-- +goose StatementBegin
-- Returns whether the database has any data of publishers or users.
CREATE FUNCTION badged.is_used() RETURNS boolean
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    p integer;
    used boolean := EXISTS (SELECT FROM badged.devices) OR EXISTS (SELECT FROM badged.revocations) OR EXISTS (SELECT FROM badged.dead_letters);
BEGIN
    FOR p IN SELECT badged.existing_partitions() LOOP
        EXIT WHEN used;
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I) OR EXISTS (SELECT FROM badged.%I WHERE folded > 0)',
            badged.log_table(p), badged.log_table(p) || '_offsets') INTO used;
    END LOOP;
    RETURN used;
END
$$;

-- Stores an entry in this shard's copy of the map, unless the copy has it or a later revision.
CREATE FUNCTION badged.map_partition(partition integer, shard text, revision bigint) RETURNS void
    LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO badged.shard_partitions AS m (partition_id, shard, revision) VALUES (partition, shard, revision)
    ON CONFLICT (partition_id) DO UPDATE SET shard = excluded.shard, revision = excluded.revision, since = excluded.since
    WHERE m.revision < excluded.revision;
END;

CREATE FUNCTION badged.refuse_partition(partition integer) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    owner text := (SELECT m.shard FROM badged.shard_partitions AS m WHERE m.partition_id = partition);
BEGIN
    IF owner = '' OR NOT EXISTS (SELECT FROM badged.shard) THEN
        RAISE EXCEPTION 'partition % was split into two', partition
            USING ERRCODE = 'BD100', CONSTRAINT = 'not_held', HINT = 'Run the transaction again: it then publishes to the partitions that its users belong to now.';
    END IF;
    RAISE EXCEPTION 'partition % is not on this shard, but on %', partition, coalesce(owner, 'another')
        USING ERRCODE = 'BD100', CONSTRAINT = 'not_held', HINT = 'Publish to badged, which knows the shards.';
END
$$;

-- Refuses appends. Only the logs of partitions that are on another shard have the trigger.
CREATE FUNCTION badged.refuse_not_held() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM badged.refuse_partition(TG_ARGV[0]::integer);
    RETURN NULL;
END
$$;

-- Ends holding a partition, whose rows stay: another shard gets it, at a revision of the map. The
-- caller keeps the gates closed; the function waits for no lock of a publisher that waits at a
-- gate. Returns the epoch, null if this shard did not hold the partition.
CREATE FUNCTION badged.release_moved_partition(partition integer, shard text, revision bigint) RETURNS text
    LANGUAGE plpgsql
AS $$
DECLARE
    was text;
BEGIN
    -- After this, the fence refuses batches with the old revision.
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''', badged.log_table(partition) || '_offsets');
    DELETE FROM badged.partitions AS p WHERE p.partition_id = partition RETURNING p.epoch INTO was;
    PERFORM badged.map_partition(partition, shard, revision);
    RETURN was;
END
$$;

-- Ends holding a partition without a gate: waits for transactions that have appended to it, and for
-- its batch. Once this transaction has committed, appends are refused.
CREATE FUNCTION badged.release_partition(partition integer, shard text, revision bigint) RETURNS text
    LANGUAGE plpgsql
AS $$
DECLARE
    log CONSTANT text := badged.log_table(partition);
BEGIN
    EXECUTE format('LOCK TABLE ONLY badged.%I IN SHARE ROW EXCLUSIVE MODE', log);
    EXECUTE format('CREATE OR REPLACE TRIGGER not_held BEFORE INSERT ON badged.%I FOR EACH STATEMENT EXECUTE FUNCTION badged.refuse_not_held(%s)', log, partition);
    RETURN badged.release_moved_partition(partition, shard, revision);
END
$$;

-- Begins holding a partition at a revision of the map, with the epoch that it had on the other
-- shard.
CREATE FUNCTION badged.hold_partition(partition integer, revision bigint, epoch text) RETURNS void
    LANGUAGE plpgsql
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
    -- If the partition came from a split, the functions need a statement for it.
    IF partition >= (SELECT s.partitions FROM badged.settings AS s) THEN
        PERFORM badged.make_append_functions();
    END IF;
END
$$;

-- Hinted handoff: the messages to rooms of one call, as a JSON array of events, that another shard
-- does not have because it was unreachable. A hint is deleted once it is replayed.
CREATE TABLE badged.hints (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The shard that must get the messages, and how many moves of partitions the map had.
    shard        text        NOT NULL,
    moves        bigint      NOT NULL,
    stored_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    count        integer     NOT NULL, -- of messages
    messages     text        NOT NULL,
    -- If this hint replaces an earlier one: the first hint, to which positions refer.
    origin_shard text        COLLATE "C",
    origin_id    bigint
);
CREATE INDEX hints_of_shard ON badged.hints (shard, id);
CREATE INDEX hints_by_origin ON badged.hints (origin_shard, origin_id) WHERE origin_id IS NOT NULL;

-- Moves of partitions from a shard, the source, to another, the target, while both serve (ADR 83),
-- and splits. Both shards have a row. Triggers record which rows of the source change, and wait at
-- two gates: advisory locks, one for publishers and one for other writers. The triggers stay after
-- the move, and refuse writers with an older map.
CREATE TABLE badged.moves (
    partition_id   smallint PRIMARY KEY,
    move_id        uuid        NOT NULL, -- the same on both shards
    role           text        NOT NULL CHECK (role IN ('source', 'target')),
    source         text        NOT NULL COLLATE "C",
    target         text        NOT NULL COLLATE "C",
    -- The revision of the partition in the map once the move is done.
    revision       bigint      NOT NULL,
    -- On the source: copying, then released. On the target: copying, then copied while changes are
    -- copied, ready when it has all rows, and held.
    state          text        NOT NULL CHECK (state IN ('copying', 'copied', 'ready', 'released', 'held')),
    -- On the target: the last copied row of the source's log, with its transaction id there.
    copied_id      bigint      NOT NULL DEFAULT 0,
    copied_offset  bigint      NOT NULL DEFAULT 0,
    copied_rows    bigint      NOT NULL DEFAULT 0,
    -- On the target: the offsets of its rows of the log begin behind this one, the greatest that
    -- any place of the partition had, as in archives.
    behind         bigint      NOT NULL DEFAULT 0,
    -- The last round of copying, a random name. The source commits it after everything that the
    -- round has read, and the target together with everything that the round has written. So the
    -- rounds of both are equal only if the target has all rows of the source from that round and
    -- neither database has lost a commit since.
    round          uuid,
    -- Of this database when the move began: renumbering changes the places of the copied rows.
    era            bigint,
    epoch          text, -- once the target is ready
    begun_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Rows of the partition that have changed since the move began. kind is the name of the table
-- without the partition. With an empty key, any rows of the table may have changed.
CREATE TABLE badged.move_changes (
    number       bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id smallint NOT NULL,
    kind         text     NOT NULL COLLATE "C",
    key          text[]   NOT NULL COLLATE "C"
);

-- On the target: which row of the log here corresponds to a place in the source's log that the
-- copied tables mention.
CREATE TABLE badged.move_places (
    partition_id  smallint NOT NULL,
    source_id     bigint   NOT NULL, -- of the transaction
    source_offset bigint   NOT NULL,
    -- The offset here of the last row up to that place, and whether a row is exactly there.
    place         bigint   NOT NULL,
    is_row        boolean  NOT NULL,
    PRIMARY KEY (partition_id, source_id, source_offset)
);

-- Returns whether this session moves or splits the partition. Such a session passes the gates,
-- and its changes are not recorded.
CREATE FUNCTION badged.is_moved_here(partition integer) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN coalesce(partition::text = ANY (string_to_array(current_setting('badged.moving', true), ',')), false);

-- Waits while a gate of a partition is closed, and then fails if the partition is on another shard.
-- The mover cannot close the gate until the calling transaction ends.
CREATE FUNCTION badged.pass_gate(class integer, partition integer) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF badged.is_moved_here(partition) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(class, partition);
    IF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM FROM badged.partitions WHERE partition_id = partition;
    ELSE
        -- An older snapshot may show the row although it was deleted. Locking it then fails.
        PERFORM FROM badged.partitions WHERE partition_id = partition FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        PERFORM badged.refuse_partition(partition);
    END IF;
END
$$;

-- The trigger on the log of a partition: the gate for publishers.
CREATE FUNCTION badged.gate_appends() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM badged.pass_gate(1650552167, TG_ARGV[0]::integer); -- "bamg"
    RETURN NULL;
END
$$;

-- Creates the trigger by which the table changed records changes of a partition's rows, and by
-- which its writers wait at the gate. shared is set if the table has the rows of all partitions.
-- key has the columns that identify a row; without them only the fact of a change is recorded. Each
-- kind has its own function, since PL/pgSQL caches the plans of static statements.
CREATE FUNCTION badged.watch_changes(partition integer, changed text, kind text, shared boolean, key text[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    row_key CONSTANT text := 'ARRAY[' || (SELECT coalesce(string_agg(format('ROW.%I::text', k), ', '), '') FROM unnest(key) AS k) || ']::text[]';
BEGIN
    EXECUTE format($f$
        CREATE OR REPLACE FUNCTION badged.%I() RETURNS trigger
            LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
        AS $b$
#variable_conflict use_variable
DECLARE
    moved CONSTANT integer := %s;
BEGIN
    -- The row has no partition, or the session is the mover. The second test repeats
    -- badged.is_moved_here, since calling that for each row takes long.
    IF moved IS NULL OR moved::text = ANY (string_to_array(current_setting('badged.moving', true), ',')) THEN
        RETURN NULL;
    END IF;
    PERFORM badged.pass_gate(1650552183, moved); -- "bamw"
    IF NOT EXISTS (SELECT FROM badged.moves AS m WHERE m.partition_id = moved AND m.role = 'source') THEN
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

-- The trigger on the log that records that an erasure has changed events.
CREATE FUNCTION badged.note_erased() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO badged.move_changes (partition_id, kind, key) SELECT m.partition_id, 'events', '{}'
    FROM badged.moves AS m WHERE m.partition_id = TG_ARGV[0]::smallint AND m.role = 'source';
    RETURN NULL;
END
$$;

-- Makes the target of a move hold the partition, after the source has released it in that round of
-- that move: then this shard has all rows, unless it has lost the round. Returns whether the shard
-- holds the partition because of that move. Several sessions may call it at once.
CREATE FUNCTION badged.complete_move(partition integer, move uuid, round uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
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
        RETURN false; -- according to the map, the partition has moved on since
    END IF;
    PERFORM badged.hold_partition(partition, m.revision, m.epoch);
    EXECUTE format('DROP TRIGGER IF EXISTS gate ON badged.%I', log);
    -- Holding the partition has raised its revision, but the move changes no badge: raise the
    -- notifiers' revisions too, so that no device or webhook becomes due.
    PERFORM badged.for_tables('{notifier_partitions,tail_partitions}', format($f$
        UPDATE badged.%%I AS t SET revision = o.revision FROM badged.%I AS o
        WHERE t.partition_id = %s AND o.consumer_group = 'projector' AND t.revision = o.revision - 1$f$,
        log || '_offsets', partition));
    UPDATE badged.moves AS x SET state = 'held' WHERE x.partition_id = partition;
    RETURN true;
END
$$;

-- Makes the source hold a partition again that it has released, after the target has lost a part of
-- its rows, and continues the move. Clients may have states from the target, so an epoch begins.
CREATE FUNCTION badged.take_back_partition(partition integer, revision bigint) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM badged.moves AS m WHERE m.partition_id = partition AND m.role = 'source' AND m.state = 'released' AND m.target <> '' FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this shard cannot hold partition % again: no move has released it, or its rows were deleted', partition USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM badged.hold_partition(partition, revision, substr(replace(gen_random_uuid()::text, '-', ''), 1, 12));
    UPDATE badged.moves AS m SET state = 'copying', round = NULL WHERE m.partition_id = partition;
END
$$;

-- Partitions that this shard has given up, until the other shard has their last events.
CREATE TABLE badged.stale_partitions (
    partition_id smallint    PRIMARY KEY,
    owner        text        NOT NULL COLLATE "C",
    since        timestamptz NOT NULL
);

-- Gives up a partition that another shard holds at a later revision of the map: this database was
-- restored to a time before it released the partition. Once this transaction has committed, appends
-- are refused. Returns whether this shard held the partition.
CREATE FUNCTION badged.give_up_partition(partition integer, owner text, revision bigint, since timestamptz) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
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

-- Records that the other shard has the last events of a partition that was given up. The rows stay.
CREATE FUNCTION badged.settle_stale_partition(partition integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO badged.moves (partition_id, move_id, role, source, target, revision, state)
    SELECT s.partition_id, gen_random_uuid(), 'source', (SELECT name FROM badged.shard), s.owner, 0, 'released'
    FROM badged.stale_partitions AS s WHERE s.partition_id = partition
    ON CONFLICT (partition_id) DO UPDATE SET move_id = excluded.move_id, role = excluded.role, source = excluded.source, target = excluded.target,
        revision = excluded.revision, state = excluded.state, epoch = NULL, round = NULL;
    DELETE FROM badged.stale_partitions AS s WHERE s.partition_id = partition;
END;

-- Creates the tables of a partition that comes from a split, unless they exist, with the grants of
-- its ancestor among the first partitions. This shard does not yet hold the partition, so appends
-- are refused. Set lock_timeout.
CREATE FUNCTION badged.create_partition(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
AS $$
DECLARE
    first  CONSTANT integer := (SELECT (partition - l.base) % s.partitions FROM badged.settings AS s, badged.level_of(partition) AS l);
    like_  CONSTANT text := badged.partition_table('', first); -- such as _p00
    suffix CONSTANT text := badged.partition_table('', partition);
    log    CONSTANT text := badged.log_table(partition);
BEGIN
    IF partition IN (SELECT badged.existing_partitions()) THEN
        RETURN;
    END IF;
    PERFORM badged.create_log(partition), badged.create_state(partition), badged.create_baseline(partition), badged.create_queues(partition);
    EXECUTE format('CREATE TRIGGER not_held BEFORE INSERT ON badged.%I FOR EACH STATEMENT EXECUTE FUNCTION badged.refuse_not_held(%s)', log, partition);
    PERFORM badged.copy_grants(relname, replace(relname, like_, suffix), true) FROM pg_class
    WHERE relnamespace = 'badged'::regnamespace AND relkind IN ('r', 'p')
      AND relname ~ (like_ || '(_offsets|_baseline)?$');
    PERFORM badged.copy_grants(log, badged.log_range_table(partition, 1));
END
$$;

-- Completes a split: ends a partition, and makes this database hold its two children, which already
-- have all its rows. The caller keeps the gates closed. Each child gets all positions, the epoch and
-- the revision, and half of the count of folded events. Returns whether it held the partition.
CREATE FUNCTION badged.split_partition(partition integer, children integer[]) RETURNS boolean
    LANGUAGE plpgsql
AS $$
DECLARE
    offsets CONSTANT text := badged.log_table(partition) || '_offsets';
    sequence CONSTANT regclass :=
        pg_get_serial_sequence('badged.' || badged.log_table(partition), 'offset');
    shard   CONSTANT text := (SELECT s.name FROM badged.shard AS s);
    child   integer;
    log     text;
BEGIN
    FOREACH child IN ARRAY children LOOP
        log := badged.log_table(child);
        EXECUTE format('INSERT INTO badged.%I SELECT * FROM badged.%I', log || '_offsets', offsets);
        EXECUTE format('UPDATE badged.%I SET folded = (folded + $1) / 2', log || '_offsets')
        USING CASE child WHEN children[1] THEN 1 ELSE 0 END;
        -- Continue the offsets: events that are folded late get places behind the position.
        PERFORM setval(pg_get_serial_sequence('badged.' || log, 'offset')::regclass,
            coalesce(pg_sequence_last_value(sequence), 1));
        INSERT INTO badged.partitions (partition_id, epoch, revision, incarnation)
        SELECT child, p.epoch, p.revision, p.incarnation FROM badged.partitions AS p WHERE p.partition_id = partition;
        INSERT INTO badged.timeline_ends (partition, timeline, next_timeline, transaction_id, pending, noticed_at)
        SELECT child, t.timeline, t.next_timeline, t.transaction_id, t.pending, t.noticed_at FROM badged.timeline_ends AS t WHERE t.partition = split_partition.partition
        ON CONFLICT DO NOTHING;
        IF shard IS NOT NULL THEN
            PERFORM badged.map_partition(child, shard, 1);
        END IF;
        EXECUTE format('DROP TRIGGER IF EXISTS gate ON badged.%I', log);
    END LOOP;
    -- After this, the fence refuses batches with the old revision.
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''', offsets);
    IF shard IS NOT NULL THEN
        PERFORM badged.map_partition(partition, '', (SELECT m.revision + 1 FROM badged.shard_partitions AS m WHERE m.partition_id = partition));
    END IF;
    DELETE FROM badged.partitions AS p WHERE p.partition_id = partition;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE badged.moves AS m SET state = 'released' WHERE m.partition_id = partition;
    PERFORM badged.make_append_functions();
    RETURN true;
END
$$;

-- Rights. All roles may call only these functions: they reveal nothing, and every role that
-- appends, opens the log, folds or reads badges calls them.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA badged FROM PUBLIC;
GRANT EXECUTE ON FUNCTION badged.rank(bigint, bigint[], bigint[]), badged.above(bigint, bigint[], bigint[]), badged.log_era(), badged.log_needs_repair(), badged.living_partitions(),
    badged.position_of(bigint), badged.refuse_batch(text), badged.refuse_missing(bigint, bigint), badged.pending_at(xid8, pg_snapshot, xid8, xid8[]) TO PUBLIC;
-- +goose StatementEnd
