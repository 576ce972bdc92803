-- The event log: one watermill-sql topic per partition, in ranges of transaction
-- ids.
--
-- The number of partitions is settled here: the migrator passes it as the session
-- setting badged.partitions.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE badged.settings (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    partitions  integer NOT NULL CHECK (partitions BETWEEN 1 AND 1024),
    -- The era in which the log was last put in order. If it is not that of this
    -- database, the log was copied here and must be renumbered. Null while it is
    -- being renumbered.
    settled_era bigint
);

-- Returns the name, in the schema badged, of a partition's table of a kind:
-- users_p03.
CREATE FUNCTION badged.partition_table(kind text, partition integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN kind || '_p' || lpad(partition::text, greatest(2, length(partition::text)), '0');

-- Returns the name, in the schema badged, of the log of a partition.
CREATE FUNCTION badged.log_table(partition integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN badged.partition_table('events', partition);

-- Returns the name of a range of it.
CREATE FUNCTION badged.log_range_table(partition integer, number integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN badged.log_table(partition) || '_r' || number::text;

-- Names the log, also in copies of the database: an archive belongs to it.
CREATE TABLE badged.log_identity (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    log_id    uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO badged.log_identity DEFAULT VALUES;

-- Returns a name that no other database has: milliseconds since 1970, then 20
-- random bits. Later names are greater, by the clocks of the servers. It is
-- declared immutable, which it is not, because generated columns require it.
CREATE FUNCTION badged.new_era(singleton boolean) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint << 20 | floor(random() * 1048576)::bigint;
END
$$;

-- The era of this database: its name. Dumps and logical replication copy rows, but
-- not generated columns, so every copy of the row gets a new era. Copies of files
-- keep it, and the transaction ids with it: physical backups, standbys,
-- pg_upgrade, CREATE DATABASE … TEMPLATE. The row is never updated.
CREATE TABLE badged.log_home (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    era       bigint  NOT NULL GENERATED ALWAYS AS (badged.new_era(singleton)) STORED
);
INSERT INTO badged.log_home DEFAULT VALUES;

-- Returns the era of this database. It is the default of every event that is
-- appended. It is immutable as long as the database exists, so Postgres calls it
-- once for each plan.
CREATE FUNCTION badged.log_era() RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    era bigint := (SELECT h.era FROM badged.log_home AS h);
BEGIN
    IF era IS NULL THEN
        RAISE EXCEPTION 'badged.log_home has no row: the database was restored in part'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run badged repair-log.';
    END IF;
    RETURN era;
END
$$;

INSERT INTO badged.settings (partitions, settled_era)
VALUES (current_setting('badged.partitions')::integer, badged.log_era());

-- The ranges of each partition, in order and without gaps. Cutting off archived
-- events is dropping ranges.
CREATE TABLE badged.log_ranges (
    partition_id smallint NOT NULL,
    number       integer  NOT NULL,
    -- Transaction ids from starts to before ends, which is null for the last range.
    -- The first range has every lower id too.
    starts       xid8     NOT NULL,
    ends         xid8     CHECK (ends > starts),
    -- The end that a check on the table is to prove before it is set.
    bound        xid8     CHECK (bound IS NULL OR bound > starts AND ends IS NULL),
    -- When the range was made, and the next transaction id then.
    made_at      timestamptz NOT NULL DEFAULT current_timestamp,
    made_id      xid8     NOT NULL,
    PRIMARY KEY (partition_id, number)
);

-- Partitions. A database begins with n of them, numbered from 0. When one is split, two
-- others take its users, and it ends. They are of the next level: after the n numbers of
-- the first come 2n of the second, 4n of the third, and so on. A user with a hash h is in a
-- partition of level k if h mod n*2^k is the number less the first number of the level.

-- Returns the partitions that have tables in this database, in ascending order: those
-- that it holds, those of other shards, and those that were split.
CREATE FUNCTION badged.existing_partitions() RETURNS SETOF integer
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT DISTINCT partition_id::integer FROM badged.log_ranges ORDER BY 1;
END;

-- Returns the first number of the level of a partition, and how many the level has.
CREATE FUNCTION badged.level_of(partition integer, OUT base integer, OUT modulus integer)
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    base := 0;
    modulus := (SELECT partitions FROM badged.settings);
    WHILE partition >= base + modulus LOOP
        base := base + modulus;
        modulus := 2 * modulus;
    END LOOP;
END
$$;

-- Gives all roles but the owner the rights to a table that they have to another, with those
-- to columns if asked.
CREATE FUNCTION badged.copy_grants(source text, target text, with_columns boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    granted record;
BEGIN
    FOR granted IN
        SELECT g.privilege_type || given.columns AS privilege, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END AS grantee
        FROM pg_class AS c
        CROSS JOIN LATERAL (
            SELECT c.relacl, ''
            UNION ALL
            SELECT a.attacl, format(' (%I)', a.attname) FROM pg_attribute AS a WHERE with_columns AND a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        ) AS given (acl, columns)
        CROSS JOIN aclexplode(given.acl) AS g
        WHERE c.oid = format('badged.%I', source)::regclass AND g.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT %s ON badged.%I TO %s', granted.privilege, target, granted.grantee);
    END LOOP;
END
$$;

-- Creates a range of a partition's log, with the grants of the log: a role may then also
-- read the range by its own name, as checks and archiving do. The bounds are those of
-- CREATE TABLE … FOR VALUES.
CREATE FUNCTION badged.create_log_range(partition integer, number integer, starts text, ends text) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    log  text := badged.log_table(partition);
    name text := badged.log_range_table(partition, number);
BEGIN
    EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.%I FOR VALUES FROM (%s) TO (%s)', name, log, starts, ends);
    PERFORM badged.copy_grants(log, name);
END
$$;

-- Creates the log of a partition: its events, with one range, and the positions of those
-- who read it.
CREATE FUNCTION badged.create_log(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    log CONSTANT text := badged.log_table(partition);
BEGIN
    -- Watermill's columns and four more. Publishers have rights to uuid, payload,
    -- metadata and events only.
    EXECUTE format($f$
        CREATE TABLE badged.%I (
            "offset"       bigint GENERATED BY DEFAULT AS IDENTITY,
            -- Order and visibility go by it, so that no event of a slow
            -- transaction is skipped.
            transaction_id xid8        NOT NULL DEFAULT pg_current_xact_id(),
            -- When the statement ran, not when its transaction began.
            created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
            -- The database that appended the event.
            era            bigint      NOT NULL DEFAULT badged.log_era(),
            -- The key of a single event.
            uuid           uuid        NOT NULL,
            -- Whether badged wrote it by itself.
            own            boolean     NOT NULL DEFAULT false,
            -- How many events the row has. It is for counting only: it may be wrong.
            events         smallint    NOT NULL DEFAULT 1,
            -- An event as JSON, or an array of them, or either compressed with zstd.
            payload        bytea,
            metadata       json,
            PRIMARY KEY (transaction_id, "offset")
        ) PARTITION BY RANGE (transaction_id)$f$, log);

    -- The largest valid event has 20,000 ids of 128 bytes, each of which JSON may
    -- escape. The policy does not bind the owner; a constraint would add a tenth
    -- to the time of each statement.
    EXECUTE format($f$
        CREATE POLICY event_size ON badged.%I USING (true)
            WITH CHECK (coalesce(pg_column_size(payload), 0) <= 8388608 AND coalesce(pg_column_size(metadata), 0) <= 65536 AND events BETWEEN 1 AND 1000)$f$, log);
    EXECUTE format('ALTER TABLE badged.%I ENABLE ROW LEVEL SECURITY', log);

    -- The last range has no end, so an event always finds its table, even if
    -- nothing maintains the ranges.
    PERFORM badged.create_log_range(partition, 1, 'MINVALUE', 'MAXVALUE');
    INSERT INTO badged.log_ranges (partition_id, number, starts, made_id)
    VALUES (partition, 1, '0', pg_snapshot_xmax(pg_current_snapshot())::text::xid8);

    -- The position of each consumer group; the projector is one of them.
    EXECUTE format($f$
        CREATE TABLE badged.%I (
            consumer_group                varchar(255) PRIMARY KEY,
            offset_acked                  bigint,
            last_processed_transaction_id xid8   NOT NULL,
            -- Of the projector: transactions up to the last that were open when
            -- it passed them, and whose events it has not folded.
            pending                       xid8[] NOT NULL DEFAULT '{}',
            -- Of the projector: how many events it has folded.
            folded                        bigint NOT NULL DEFAULT 0,
            era                           bigint NOT NULL DEFAULT badged.log_era(),
            -- Of the projector: grows with every change of the row in badged.partitions,
            -- which is a new epoch, or rows of users or conversations that another
            -- program has written. The statement that moves the position compares both.
            revision                      bigint NOT NULL DEFAULT 0
        ) WITH (fillfactor = 50)$f$, log || '_offsets');
END
$$;

DO $$
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        PERFORM badged.create_log(p);
        EXECUTE format($f$INSERT INTO badged.%I VALUES ('projector', 0, '0')$f$, badged.log_table(p) || '_offsets');
    END LOOP;
END
$$;

-- Waits for the batches of every partition to end, and keeps others from beginning
-- until the transaction ends. A migration that alters tables of batches calls it
-- first: otherwise the two could lock tables in opposite orders.
CREATE FUNCTION badged.wait_for_batches() RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p integer;
BEGIN
    FOR p IN SELECT badged.existing_partitions() LOOP
        EXECUTE format('LOCK TABLE badged.%I IN EXCLUSIVE MODE', badged.log_table(p) || '_offsets');
    END LOOP;
END
$$;

-- Keeps the last range of a partition ahead of the events. Once half of the ids
-- before it have been assigned, it gets an end, and a new last range begins there.
-- A range is wide enough for about a span at the recent rate of ids, and has at
-- least that many ids. Returns whether there is more to do: then call it again, in
-- another transaction.
--
-- An empty or small table gets its end at once. A large last range, which nothing
-- maintained for long, first gets a check that proves all its ids to be below the
-- end, while others read and write. If all processes stopped in between, or a
-- reader held the table for as long, the check would refuse events once ids reach
-- it. It is about a span ahead, and dropped if less than a quarter of that is left.
--
-- It waits for locks for 100 ms, since publishers wait behind it, and then fails
-- with lock_not_available.
CREATE FUNCTION badged.extend_log(partition integer, span interval, least_ids bigint) RETURNS boolean
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
    -- Bytes that are scanned before others notice.
    small_table CONSTANT bigint := 16 * 1024 * 1024;
    -- How many ids ahead a check is at least, and at most.
    check_least CONSTANT bigint := 4 * 1024 * 1024;
    check_most  CONSTANT bigint := 512 * 1024 * 1024;
    -- A burst must not make a range that lasts for years.
    most_ids    CONSTANT bigint := 128 * 1024 * 1024;
    log    text := badged.log_table(partition);
    last   badged.log_ranges;
    name   text;
    starts bigint;
    made   bigint;
    next   bigint;
    rate   bigint; -- ids a span
    ahead  bigint; -- of a check
    width  bigint;
    till   bigint;
BEGIN
    -- Twice: without a lock to see whether anything is due, and with it whether it
    -- still is.
    FOR turn IN 1 .. 2 LOOP
        SELECT * INTO last FROM badged.log_ranges AS r WHERE r.partition_id = partition ORDER BY number DESC LIMIT 1;
        IF last.number IS NULL THEN
            RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
        END IF;
        starts := last.starts::text::bigint;
        made := last.made_id::text::bigint;
        next := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
        IF next < made + (starts - made) / 2 THEN
            RETURN false;
        END IF;
        name := badged.log_range_table(partition, last.number);
        rate := (next - made) * extract(epoch FROM span) / greatest(extract(epoch FROM clock_timestamp() - last.made_at), 1);
        ahead := least(greatest(rate, check_least), check_most);
        IF turn = 1 THEN
            IF last.bound IS NOT NULL AND last.bound::text::bigint < next + ahead / 4 THEN
                EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT IF EXISTS bound', name);
                UPDATE badged.log_ranges AS r SET bound = NULL WHERE r.partition_id = partition AND r.number = last.number;
                RETURN true;
            ELSIF last.bound IS NULL AND pg_relation_size(format('badged.%I', name)::regclass) > small_table THEN
                EXECUTE format('ALTER TABLE badged.%I ADD CONSTRAINT bound CHECK (transaction_id >= %L AND transaction_id < %L) NOT VALID',
                    name, starts, next + ahead);
                UPDATE badged.log_ranges AS r SET bound = (next + ahead)::text::xid8
                WHERE r.partition_id = partition AND r.number = last.number;
                RETURN true;
            ELSIF EXISTS (
                SELECT FROM pg_constraint
                WHERE conrelid = format('badged.%I', name)::regclass AND conname = 'bound' AND NOT convalidated
            ) THEN
                EXECUTE format('ALTER TABLE badged.%I VALIDATE CONSTRAINT bound', name);
                RETURN true;
            END IF;
            EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', log);
        END IF;
    END LOOP;
    width := least(greatest(rate, least_ids), 4 * greatest(starts - made, least_ids), greatest(most_ids, least_ids));
    till := coalesce(last.bound::text::bigint, greatest(next, starts) + width);
    EXECUTE format('ALTER TABLE badged.%I DETACH PARTITION badged.%I', log, name);
    EXECUTE format('ALTER TABLE badged.%I ATTACH PARTITION badged.%I FOR VALUES FROM (%s) TO (%L)', log, name,
        CASE starts WHEN 0 THEN 'MINVALUE' ELSE quote_literal(starts) END, till);
    EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT IF EXISTS bound', name);
    PERFORM badged.create_log_range(partition, last.number + 1, quote_literal(till), 'MAXVALUE');
    UPDATE badged.log_ranges AS r SET ends = till::text::xid8, bound = NULL
    WHERE r.partition_id = partition AND r.number = last.number;
    INSERT INTO badged.log_ranges (partition_id, number, starts, made_id)
    VALUES (partition, last.number + 1, till::text::xid8, next::text::xid8);
    RETURN false;
END
$$;

-- Puts the ranges of a renumbered partition in order: they are of ids that may be
-- far ahead of its events. If only the first range has events, it becomes the only
-- one. It waits for locks as extend_log does.
CREATE FUNCTION badged.settle_log_ranges(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
    log   text    := badged.log_table(partition);
    first integer := (SELECT min(number) FROM badged.log_ranges AS r WHERE r.partition_id = partition);
    name  text    := badged.log_range_table(partition, first);
    next  xid8    := pg_snapshot_xmax(pg_current_snapshot())::text::xid8;
    other integer;
    alone boolean := true;
    found boolean;
BEGIN
    EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', log);
    FOR other IN SELECT number FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number > first LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I)', badged.log_range_table(partition, other)) INTO found;
        alone := alone AND NOT found;
    END LOOP;
    IF alone THEN
        FOR other IN SELECT number FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number > first LOOP
            EXECUTE format('DROP TABLE badged.%I', badged.log_range_table(partition, other));
        END LOOP;
        DELETE FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number > first;
        EXECUTE format('ALTER TABLE badged.%I DETACH PARTITION badged.%I', log, name);
        EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT IF EXISTS bound', name);
        EXECUTE format('ALTER TABLE badged.%I ATTACH PARTITION badged.%I FOR VALUES FROM (MINVALUE) TO (MAXVALUE)', log, name);
    END IF;
    UPDATE badged.log_ranges AS r
    SET ends = CASE WHEN NOT alone THEN ends END, bound = CASE WHEN NOT alone THEN bound END, made_at = current_timestamp, made_id = next
    WHERE r.partition_id = partition AND number = (SELECT max(number) FROM badged.log_ranges AS r WHERE r.partition_id = partition);
END
$$;

-- Moves events of transactions that have ended late to places right behind a
-- position, in the order of the arrays. The projector calls it in the
-- transaction that folds them.
CREATE FUNCTION badged.move_late(partition integer, transactions bigint[], offsets bigint[], behind_transaction bigint, behind_offset bigint) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    moved bigint;
BEGIN
    EXECUTE format($f$
        UPDATE badged.%I AS e
        SET transaction_id = $3::text::xid8, "offset" = $4 + l.place
        FROM unnest($1, $2) WITH ORDINALITY AS l (id, "offset", place)
        WHERE e.transaction_id = l.id::text::xid8 AND e."offset" = l."offset" AND l.id <= $3$f$, badged.log_table(partition))
    USING transactions, offsets, behind_transaction, behind_offset;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> cardinality(transactions) THEN
        RAISE EXCEPTION '% of % late events are not in the log any more', cardinality(transactions) - moved, cardinality(transactions)
            USING ERRCODE = 'no_data_found';
    END IF;
END
$$;

-- Returns whether the log, or a part of it, was copied here and has not been
-- renumbered. If only some tables were copied, the positions of consumers and the
-- last event of each partition tell. A projector's position that no event can
-- reach is a copy too.
CREATE FUNCTION badged.log_needs_repair() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    p      integer;
    home   bigint  := (SELECT era FROM badged.log_home);
    needed boolean := home IS NULL OR home IS DISTINCT FROM (SELECT settled_era FROM badged.settings);
    log    text;
BEGIN
    FOR p IN SELECT badged.existing_partitions() LOOP
        EXIT WHEN needed;
        log := badged.log_table(p);
        -- Renumbered events have the id 3, and keep their era.
        EXECUTE format($f$
            SELECT EXISTS (SELECT FROM badged.%I
                           WHERE era <> $1 OR consumer_group = 'projector' AND last_processed_transaction_id > pg_snapshot_xmax(pg_current_snapshot())::text::xid8)
                OR EXISTS (SELECT FROM (SELECT era, transaction_id FROM badged.%I ORDER BY transaction_id DESC, "offset" DESC LIMIT 1) AS last
                           WHERE era <> $1 AND transaction_id > '3')$f$, log || '_offsets', log)
        INTO needed USING home;
    END LOOP;
    RETURN needed;
END
$$;

-- Events that a projector could not decode or fold, and messages of brokers that are no
-- events. The latter have an origin, and no place in the log.
CREATE TABLE badged.dead_letters (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id   smallint,
    transaction_id xid8,
    "offset"       bigint,
    -- Of the event among those of the row, from 0 on.
    index          smallint    NOT NULL DEFAULT 0,
    uuid           uuid,
    -- The event, or the row if its events cannot be told apart. Null if it is too
    -- large.
    payload        bytea,
    reason         text        NOT NULL,
    -- The users that refused it, if it was folded for its others; null if it was folded
    -- for none.
    user_ids       text[],
    created_at     timestamptz NOT NULL DEFAULT current_timestamp,
    origin         text,
    UNIQUE (partition_id, transaction_id, "offset", index),
    CONSTRAINT dead_letters_have_a_place CHECK (num_nulls(partition_id, transaction_id, "offset", uuid) = CASE WHEN origin IS NULL THEN 0 ELSE 4 END)
);

-- Returns the parts of a text between quotation marks, to find by an index the texts that may
-- name a user: in JSON, or quoted. A backslash alone stands for a text that has escapes or is
-- long: such texts are read. PL/pgSQL, since a function of SQL takes 20 times as long here.
CREATE FUNCTION badged.words(content text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN CASE WHEN length(content) > 100000 OR position('\' IN content) > 0 THEN '["\\"]'::jsonb ELSE to_jsonb(string_to_array(content, '"')) END;
END
$$;

-- Returns those of a dead letter. Its payload is any bytes: those of other than ASCII become
-- \nnn, and a backslash becomes two.
CREATE FUNCTION badged.words(payload bytea, reason text, user_ids text[]) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN CASE WHEN payload IS NULL THEN '[]'::jsonb
            WHEN octet_length(payload) > 100000 OR substr(payload, 1, 1) NOT IN ('{'::bytea, '['::bytea) OR position('\\'::bytea IN payload) > 0 THEN '["\\"]'::jsonb
            ELSE to_jsonb(string_to_array(encode(payload, 'escape'), '"')) END
        || badged.words(reason) || coalesce(to_jsonb(user_ids), '[]'::jsonb);
END
$$;

-- Returns what a text or dead letter that may name a user has some of among these parts.
CREATE FUNCTION badged.words_of_user(user_id text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['\', user_id] || string_to_array(user_id, '"') || string_to_array(encode(convert_to(user_id, 'UTF8'), 'escape'), '"');

-- For exporting and erasing a user.
CREATE INDEX dead_letters_words ON badged.dead_letters USING gin (badged.words(payload, reason, user_ids)) WITH (gin_pending_list_limit = 256);

-- The places of events that were put aside as dead letters and are none any more.
-- They were not folded there: a release that can decode them must not fold them
-- when it replays the log.
CREATE TABLE badged.settled_letters (
    partition_id   smallint NOT NULL,
    transaction_id xid8     NOT NULL,
    "offset"       bigint   NOT NULL,
    index          smallint NOT NULL,
    -- As in badged.dead_letters.
    user_ids       text[],
    PRIMARY KEY (partition_id, transaction_id, "offset", index)
);
CREATE INDEX settled_letters_users ON badged.settled_letters USING gin (user_ids) WHERE user_ids IS NOT NULL;

-- Puts events of a partition aside as dead letters if their transaction id has not
-- been assigned yet. Only the owner of the schema can write such an event. It
-- could not be read for long, and no range of the log could end before it. Returns
-- how many there were.
CREATE FUNCTION badged.bury_unissued(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    buried integer;
BEGIN
    EXECUTE format($f$
        WITH unissued AS (
            DELETE FROM badged.%I
            -- The snapshot of this statement: compared with an earlier one, events that
            -- were appended in between would be from the future.
            WHERE transaction_id >= (SELECT pg_snapshot_xmax(pg_current_snapshot())) AND era = $2
            RETURNING transaction_id, "offset", uuid, payload
        )
        INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason)
        SELECT $1, transaction_id, "offset", uuid, CASE WHEN octet_length(payload) <= 8388608 THEN payload END, 'it had the transaction id ' || transaction_id::text || ', which was not given out yet'
        FROM unissued$f$, badged.log_table(partition))
    USING partition, badged.log_era();
    GET DIAGNOSTICS buried = ROW_COUNT;
    RETURN buried;
END
$$;
-- +goose StatementEnd
