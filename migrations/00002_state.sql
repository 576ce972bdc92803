-- What the projector folds the log into. The owner of a partition writes it, in
-- the transaction that also moves the partition's position.

-- +goose Up
CREATE TABLE badged.partitions (
    partition_id smallint PRIMARY KEY,
    -- Changes when the versions of the partition's users start afresh.
    epoch        text   NOT NULL,
    -- Every other writer of users or conversations raises it, behind the row of the
    -- position, so that the owner reads its cached rows again.
    revision     bigint NOT NULL DEFAULT 0,
    -- The life of Postgres in which the epoch was last known to be right: timeline
    -- and start of the postmaster. A promotion and a point-in-time recovery begin a
    -- timeline; a restored data directory, and a crash, begin with a start. They may
    -- have lost commits that clients were told of, so the projector compares it in
    -- every batch and begins a new epoch if it differs.
    incarnation  text   NOT NULL
);

-- Columns of fixed width come first, the widest ahead, so that no row is padded.
-- There are no CHECK constraints: Postgres prepares them for each statement, which
-- doubles the time of updating a row. The fold keeps what they would say, and
-- badged verify finds rows that differ.
CREATE TABLE badged.users (
    -- 0 if apps have claimed a read before the user's first event.
    version      bigint   NOT NULL,
    total        bigint   NOT NULL,
    mentions     bigint   NOT NULL,
    partition_id smallint NOT NULL,
    user_id      text     NOT NULL COLLATE "C",
    -- The total by category, without zeros.
    categories   jsonb    NOT NULL,
    -- What the user's apps said that they have read and was not delivered yet,
    -- oldest first; null for nothing.
    claims       jsonb
) PARTITION BY LIST (partition_id);

CREATE TYPE badged.level AS ENUM ('all', 'mentions', 'none');

CREATE TABLE badged.conversations (
    -- The user's version as of the last change that a client can see.
    version         bigint   NOT NULL,
    read_seq        bigint   NOT NULL,
    last_seq        bigint   NOT NULL,
    -- Null for a member. The user is out while last_seq is not above it.
    left_seq        bigint,
    unread          bigint   NOT NULL,
    mentions        bigint   NOT NULL,
    level           badged.level NOT NULL,
    -- Hours since 1970 (UTC) of the latest delivery or mark, as the log dates it; 0
    -- for none. By the hour, since a change of an indexed column writes to every
    -- index of the table.
    delivered_hour  integer  NOT NULL,
    partition_id    smallint NOT NULL,
    marked_unread   boolean  NOT NULL,
    user_id         text     NOT NULL COLLATE "C",
    conversation_id text     NOT NULL COLLATE "C",
    category        text     NOT NULL COLLATE "C",
    -- Delivered, not recalled, above read_seq; those of them that mention the user;
    -- and the recalled above read_seq, delivered or not. Each is encoded as
    -- projector/internal/badge/encode.go says, null for an empty set; badged verify
    -- and badged explain print them.
    unread_set      bytea,
    mention_set     bytea,
    recalled_set    bytea
) PARTITION BY LIST (partition_id);

-- For the expiry sweep. Over read and unread rows: whether a row is unread changes
-- with every message, so an index on unread rows would prevent HOT updates.
CREATE INDEX conversations_delivered_hour ON badged.conversations (category, delivered_hour);

-- Conversations of a category that were last delivered to before swept_hour have
-- been examined, and expired if unread. Without a row none has.
CREATE TABLE badged.expiry_progress (
    partition_id smallint NOT NULL,
    category     text     NOT NULL COLLATE "C",
    swept_hour   integer  NOT NULL CHECK (swept_hour >= 0),
    PRIMARY KEY (partition_id, category)
);

-- Keys of folded events are remembered in generations, each a table per partition,
-- so that forgetting is dropping a table. A generation holds the keys of the events
-- behind its position in the log, up to where the next begins. Rows stay when the
-- tables go: they say how every repetition in the log was decided.
CREATE TABLE badged.dedup_generations (
    partition_id   smallint    NOT NULL,
    generation     integer     NOT NULL CHECK (generation > 0),
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    begun_at       timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, generation)
);

-- Returns the name, in the schema badged, of the table of a generation.
CREATE FUNCTION badged.dedup_keys_table(partition integer, generation integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN badged.partition_table('dedup_keys', partition) || '_g' || generation::text;

-- Users whose rows were wrong and have been replayed from the log. A healed user
-- has a version above all that clients may hold, which the log alone does not
-- give: a replay adds the difference.
CREATE TABLE badged.healed_users (
    partition_id smallint    NOT NULL,
    user_id      text        NOT NULL COLLATE "C",
    -- What the user and its conversations got when they were last healed.
    version      bigint      NOT NULL CHECK (version > 0),
    -- How far the user's versions are ahead of those that the log gives.
    ahead        bigint      NOT NULL CHECK (ahead BETWEEN 0 AND version),
    healed_at    timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, user_id)
);

-- When events were folded, if that was more than a second after they were
-- appended. Each row ends a run of events of a partition, which were folded at a
-- time or, if that is null, within a second. Events behind the last row were in
-- time.
CREATE TABLE badged.late_folds (
    partition_id   smallint    NOT NULL,
    number         bigint      NOT NULL,
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    -- When the run began: batches within a second are one run.
    since          timestamptz NOT NULL DEFAULT clock_timestamp(),
    folded_at      timestamptz,
    PRIMARY KEY (partition_id, number)
);

-- +goose StatementBegin
DO $$
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        INSERT INTO badged.partitions (partition_id, epoch, incarnation)
        VALUES (
            p,
            substr(replace(gen_random_uuid()::text, '-', ''), 1, 12),
            left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text
        );

        -- Counters are updated far more often than rows are added: room in each page
        -- keeps those updates off the indexes.
        EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.users (PRIMARY KEY (user_id)) FOR VALUES IN (%s) WITH (fillfactor = 80)',
            badged.partition_table('users', p), p);
        EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.conversations (PRIMARY KEY (user_id, conversation_id)) FOR VALUES IN (%s) WITH (fillfactor = 75)',
            badged.partition_table('conversations', p), p);

        INSERT INTO badged.dedup_generations VALUES (p, 1, '0', 0);
        EXECUTE format($f$
            CREATE TABLE badged.%I (
                key   uuid  PRIMARY KEY,
                -- The users who have had the event: eight bytes of the SHA-256 of each
                -- id, the ninth to the sixteenth. Random bytes do not compress.
                users bytea NOT NULL DEFAULT ''
            )$f$, badged.dedup_keys_table(p, 1));
        EXECUTE format('ALTER TABLE badged.%I ALTER COLUMN users SET STORAGE EXTERNAL', badged.dedup_keys_table(p, 1));
    END LOOP;
END
$$;
-- +goose StatementEnd

-- The statements of a batch call these functions only to fail: they set no
-- search_path, and use nothing that depends on it. Statements that are sent in one
-- round trip stop at the first that fails.

-- Raises an error of class BD, which Postgres leaves to its users.
-- +goose StatementBegin
CREATE FUNCTION badged.refuse_batch(code text) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the partition is not in the expected state' USING ERRCODE = code;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION badged.refuse_missing(missing bigint, expected bigint) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% of % rows are missing: something other than badged has deleted them', missing, expected
        USING ERRCODE = 'no_data_found';
END
$$;
-- +goose StatementEnd

-- Returns the transactions that are pending once the position is at the
-- transaction own: of the former ones, and of those above the former position,
-- which were open in a snapshot of own. The snapshot lists the open ones below its
-- xmax, the last that has completed plus one; any from there up to own may be open
-- too.
CREATE FUNCTION badged.pending_at(own xid8, seen pg_snapshot, former_position xid8, former xid8[]) RETURNS xid8[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ARRAY(
        SELECT x FROM unnest(former) AS x WHERE NOT pg_visible_in_snapshot(x, seen)
        UNION
        SELECT x FROM pg_snapshot_xip(seen) AS x WHERE x > former_position AND x < own
        UNION
        SELECT x::text::xid8 FROM generate_series(pg_snapshot_xmax(seen)::text::bigint, own::text::bigint - 1) AS x
        ORDER BY 1
    );

-- Creates the table of the generation after the present one unless it exists, and
-- returns the number of that generation.
-- +goose StatementBegin
CREATE FUNCTION badged.create_dedup_generation(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    present integer := (SELECT max(generation) FROM badged.dedup_generations WHERE partition_id = partition);
    next    text    := badged.dedup_keys_table(partition, present + 1);
BEGIN
    IF present IS NULL THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    ELSIF to_regclass(format('badged.%I', next)) IS NOT NULL THEN
        RETURN present + 1;
    END IF;
    EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING DEFAULTS INCLUDING STORAGE, PRIMARY KEY (key))',
        next, badged.dedup_keys_table(partition, present));
    PERFORM badged.copy_grants(badged.dedup_keys_table(partition, present), next);
    RETURN present + 1;
EXCEPTION
    WHEN duplicate_table OR duplicate_object OR unique_violation THEN -- another process was faster
        RETURN present + 1;
END
$$;
-- +goose StatementEnd

-- Drops the tables of the generations before the present one and the two that are
-- checked with it, the oldest first, and returns how many it had to leave. It does
-- not wait for a lock that another session holds, such as pg_dump, since others
-- would have to wait behind it.
-- +goose StatementBegin
CREATE FUNCTION badged.drop_dedup_generations(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    youngest integer := (SELECT max(generation) - 3 FROM badged.dedup_generations WHERE partition_id = partition);
    oldest   integer := youngest + 1;
    name     text;
BEGIN
    WHILE to_regclass(format('badged.%I', badged.dedup_keys_table(partition, oldest - 1))) IS NOT NULL LOOP
        oldest := oldest - 1;
    END LOOP;
    FOR g IN oldest .. youngest LOOP
        name := badged.dedup_keys_table(partition, g);
        BEGIN
            EXECUTE format('LOCK TABLE badged.%I IN ACCESS EXCLUSIVE MODE NOWAIT', name);
            EXECUTE format('DROP TABLE badged.%I', name);
        EXCEPTION
            WHEN lock_not_available THEN
                RETURN youngest - g + 1;
            WHEN undefined_table THEN
                NULL; -- another process was faster
        END;
    END LOOP;
    RETURN 0;
END
$$;
-- +goose StatementEnd
