-- What operators use: rebuilding tables, archiving the log, jobs, the audit trail,
-- roles. No badge depends on any of it.

-- +goose Up

-- What a rebuild of all partitions has done so far: if it is interrupted, the next
-- one continues with the others. Empty after its end.
CREATE TABLE badged.rebuilt_partitions (
    partition_id    smallint    PRIMARY KEY,
    rebuilt_at      timestamptz NOT NULL DEFAULT current_timestamp,
    users           bigint      NOT NULL,
    conversations   bigint      NOT NULL,
    different_users bigint      NOT NULL
);

-- Returns the names, in the schema badged, of the tables of a partition that a
-- rebuild replaces.
CREATE FUNCTION badged.state_tables(partition integer) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ARRAY(
        SELECT badged.partition_table(kind, partition)
        FROM unnest(ARRAY['users', 'conversations', 'rooms', 'room_chunks', 'room_marks']) WITH ORDINALITY AS k (kind, n) ORDER BY n
    );

-- Gives the planner statistics of the tables of a partition that were filled, which it
-- lacks until autovacuum comes. The suffix is '_staging' for staging tables.
-- +goose StatementBegin
CREATE FUNCTION badged.analyze_tables(partition integer, suffix text) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live text;
BEGIN
    FOREACH live IN ARRAY badged.state_tables(partition) LOOP
        EXECUTE format('ANALYZE badged.%I', live || suffix);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Drops the staging tables of a partition, if there are any.
-- +goose StatementBegin
CREATE FUNCTION badged.drop_staging_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live text;
BEGIN
    FOREACH live IN ARRAY badged.state_tables(partition) LOOP
        IF to_regclass(format('badged.%I', live || '_staging')) IS NOT NULL THEN
            EXECUTE format('DROP TABLE badged.%I', live || '_staging');
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Creates empty staging tables for a partition: with the columns, constraints,
-- indexes, settings and grants of its live tables.
-- +goose StatementBegin
CREATE FUNCTION badged.create_staging_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live    text;
    options text;
BEGIN
    IF partition NOT BETWEEN 0 AND (SELECT partitions - 1 FROM badged.settings) THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH live IN ARRAY badged.state_tables(partition) LOOP
        SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '') INTO options
        FROM pg_class WHERE oid = format('badged.%I', live)::regclass;
        -- The constraint saves a scan when the table is attached.
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING ALL, CONSTRAINT of_partition CHECK (partition_id = %s)) %s',
            live || '_staging', live, partition, options);
        PERFORM badged.copy_grants(live, live || '_staging');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Replaces the live tables of a partition by its staging tables. It locks out all
-- readers of users and conversations until the transaction ends, in the order in
-- which they lock. Set lock_timeout: others wait behind it while it waits.
-- +goose StatementBegin
CREATE FUNCTION badged.swap_staging_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live    text;
    parent  text;
    names   jsonb;
    staged record;
BEGIN
    FOREACH live IN ARRAY badged.state_tables(partition) LOOP
        EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', regexp_replace(live, '_p[0-9]+$', ''));
        EXECUTE format('LOCK TABLE badged.%I IN ACCESS EXCLUSIVE MODE', live);
    END LOOP;
    FOREACH live IN ARRAY badged.state_tables(partition) LOOP
        parent := regexp_replace(live, '_p[0-9]+$', '');
        -- Indexes keep the names of those with the same definition.
        SELECT jsonb_object_agg(regexp_replace(pg_get_indexdef(c.oid), 'INDEX \S+ ON \S+ ', ''), c.relname) INTO names
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE i.indrelid = format('badged.%I', live)::regclass;
        EXECUTE format('DROP TABLE badged.%I', live);
        EXECUTE format('ALTER TABLE badged.%I RENAME TO %I', live || '_staging', live);
        FOR staged IN
            SELECT c.relname AS name, names ->> regexp_replace(pg_get_indexdef(c.oid), 'INDEX \S+ ON \S+ ', '') AS former
            FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
            WHERE i.indrelid = format('badged.%I', live)::regclass
        LOOP
            EXECUTE format('ALTER INDEX badged.%I RENAME TO %I', staged.name, staged.former);
        END LOOP;
        EXECUTE format('ALTER TABLE badged.%I ATTACH PARTITION badged.%I FOR VALUES IN (%s)', parent, live, partition);
        EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT of_partition', live);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Where the log of a partition begins: behind an archived event. Without a row, at
-- its start.
CREATE TABLE badged.baselines (
    partition_id   smallint PRIMARY KEY,
    transaction_id xid8     NOT NULL,
    "offset"       bigint   NOT NULL,
    -- The generation of event keys that was the present one there, 0 for none.
    generation     integer  NOT NULL,
    -- How many events are archived, and when the latest of them was appended.
    events         bigint   NOT NULL,
    appended_until timestamptz NOT NULL
);

-- The archive's files, as in its manifest.
CREATE TABLE badged.archived_files (
    partition_id smallint    NOT NULL,
    number       integer     NOT NULL,
    -- Of log_ranges.
    range        integer     NOT NULL,
    events       bigint      NOT NULL,
    sha256       text        NOT NULL,
    archived_at  timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, number)
);

-- Returns the names, in the schema badged, of the tables of a partition's
-- baseline: the users, conversations and rooms that the archived events give, and
-- the event keys that were remembered there, by generation.
CREATE FUNCTION badged.baseline_tables(partition integer) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ARRAY[
        badged.partition_table('users', partition) || '_baseline',
        badged.partition_table('conversations', partition) || '_baseline',
        badged.partition_table('keys', partition) || '_baseline',
        badged.partition_table('rooms', partition) || '_baseline',
        badged.partition_table('room_chunks', partition) || '_baseline',
        badged.partition_table('room_marks', partition) || '_baseline'
    ];

-- Anything that changes the columns of these tables changes theirs too.
-- +goose StatementBegin
DO $$
DECLARE
    baseline text[];
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        baseline := badged.baseline_tables(p);
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.users INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (user_id))', baseline[1]);
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.conversations INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (user_id, conversation_id))', baseline[2]);
        EXECUTE format($f$
            CREATE TABLE badged.%I (
                key        uuid    PRIMARY KEY,
                -- The users who have had the event: eight bytes of the SHA-256 of each
                -- id, the ninth to the sixteenth. Random bytes do not compress.
                users      bytea   NOT NULL,
                generation integer NOT NULL
            )$f$, baseline[3]);
        EXECUTE format('ALTER TABLE badged.%I ALTER COLUMN users SET STORAGE EXTERNAL', baseline[3]);
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.rooms INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (conversation_id))', baseline[4]);
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.room_chunks INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (conversation_id, bound))', baseline[5]);
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.room_marks INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (conversation_id, seq, user_id))', baseline[6]);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Drops the tables of a partition's next baseline, if there are any.
-- +goose StatementBegin
CREATE FUNCTION badged.drop_baseline_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    baseline text;
BEGIN
    FOREACH baseline IN ARRAY badged.baseline_tables(partition) LOOP
        IF to_regclass(format('badged.%I', baseline || '_next')) IS NOT NULL THEN
            EXECUTE format('DROP TABLE badged.%I', baseline || '_next');
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Creates empty tables for the next baseline of a partition, with the grants of
-- the present one.
-- +goose StatementBegin
CREATE FUNCTION badged.create_baseline_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    baseline text;
BEGIN
    IF partition NOT BETWEEN 0 AND (SELECT partitions - 1 FROM badged.settings) THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH baseline IN ARRAY badged.baseline_tables(partition) LOOP
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING ALL)', baseline || '_next', baseline);
        PERFORM badged.copy_grants(baseline, baseline || '_next');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Replaces the baseline of a partition by the next one. It locks out replays. Set
-- lock_timeout.
-- +goose StatementBegin
CREATE FUNCTION badged.swap_baseline_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    baseline text;
BEGIN
    FOREACH baseline IN ARRAY badged.baseline_tables(partition) LOOP
        EXECUTE format('LOCK TABLE badged.%I IN ACCESS EXCLUSIVE MODE', baseline);
    END LOOP;
    FOREACH baseline IN ARRAY badged.baseline_tables(partition) LOOP
        EXECUTE format('DROP TABLE badged.%I', baseline);
        EXECUTE format('ALTER TABLE badged.%I RENAME TO %I', baseline || '_next', baseline);
        EXECUTE format('ALTER TABLE badged.%I RENAME CONSTRAINT %I TO %I', baseline, baseline || '_next_pkey', baseline || '_pkey');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Drops the first ranges of the log of a partition that are complete and have no
-- event behind the baseline, and returns how many. In their place comes an empty
-- range from the start, for low transaction ids: the log was then restored into
-- another cluster, and must be renumbered. It locks out readers and publishers for
-- some milliseconds. Set lock_timeout.
-- +goose StatementBegin
CREATE FUNCTION badged.drop_log_ranges(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    -- By the index also if a table was never analyzed: others wait.
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    log      text := badged.log_table(partition);
    horizon  xid8 := pg_snapshot_xmin(pg_current_snapshot())::text::xid8;
    baseline badged.baselines;
    range    badged.log_ranges;
    gone     integer[] := '{}';
    start    xid8;
    needed   boolean;
BEGIN
    SELECT * INTO baseline FROM badged.baselines AS b WHERE b.partition_id = partition;
    IF baseline.partition_id IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', log);
    FOR range IN SELECT * FROM badged.log_ranges AS r WHERE r.partition_id = partition ORDER BY number LOOP
        EXIT WHEN range.ends IS NULL OR range.ends > horizon;
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I WHERE (transaction_id, "offset") > ($1, $2))', badged.log_range_table(partition, range.number))
        INTO needed USING baseline.transaction_id, baseline."offset";
        EXIT WHEN needed;
        gone := gone || range.number;
        start := range.ends;
    END LOOP;
    IF gone = '{}' OR gone = '{0}' THEN
        RETURN 0;
    END IF;
    FOR i IN 1 .. cardinality(gone) LOOP
        EXECUTE format('DROP TABLE badged.%I', badged.log_range_table(partition, gone[i]));
    END LOOP;
    DELETE FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number = ANY (gone);
    PERFORM badged.create_log_range(partition, 0, 'MINVALUE', quote_literal(start));
    INSERT INTO badged.log_ranges (partition_id, number, starts, ends, made_id) VALUES (partition, 0, '0', start, horizon);
    RETURN cardinality(gone);
END
$$;
-- +goose StatementEnd

-- The audit trail. The row of an action is written before the action begins.
CREATE TABLE badged.audit (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    who       text        NOT NULL,
    via       text        NOT NULL CHECK (via IN ('api', 'cli')),
    action    text        NOT NULL,
    arguments json        NOT NULL
);

-- The end of each action. It is a row of its own, so that no role that writes the
-- trail needs the right to change it. An action without an end was under way when
-- its process ended.
CREATE TABLE badged.audit_ends (
    audit_id bigint      PRIMARY KEY REFERENCES badged.audit ON DELETE CASCADE,
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    result   json,
    error    text
);

-- Rebuilds and verifications that operators have started. The process that runs a
-- job holds the advisory lock of its id: a running job whose lock is free was
-- interrupted.
CREATE TABLE badged.jobs (
    id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text        NOT NULL CHECK (kind IN ('rebuild', 'verification')),
    arguments        json        NOT NULL,
    started_by       text        NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    process          text        NOT NULL,
    state            text        NOT NULL DEFAULT 'running'
                                 CHECK (state IN ('running', 'done', 'failed', 'canceled', 'interrupted')),
    progress         json        NOT NULL DEFAULT '{}',
    cancel_requested boolean     NOT NULL DEFAULT false,
    ended_at         timestamptz CHECK ((ended_at IS NULL) = (state = 'running')),
    result           json,
    error            text
);

-- What each process has counted since it started, every few seconds; kept for an
-- hour. Unlogged, because a crash of Postgres may empty it without loss.
CREATE UNLOGGED TABLE badged.samples (
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    process    text        NOT NULL,
    started_at timestamptz NOT NULL,
    roles      text[]      NOT NULL,
    counted    json        NOT NULL,
    PRIMARY KEY (at, process, started_at)
);

-- The roles and kinds of `badged migrate grant`, so that each `badged migrate up`
-- grants them what new tables take.
CREATE TABLE badged.granted_roles (
    role name PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('server', 'publisher', 'consumer', 'reader'))
);

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA badged FROM PUBLIC;
-- They reveal nothing, and every role that appends, opens the log, folds or reads
-- badges calls them.
GRANT EXECUTE ON FUNCTION badged.rank(bigint, bigint[], bigint[]), badged.above(bigint, bigint[], bigint[]), badged.log_era(), badged.log_needs_repair(), badged.refuse_batch(text),
    badged.refuse_missing(bigint, bigint), badged.pending_at(xid8, pg_snapshot, xid8, xid8[]) TO PUBLIC;
