-- The event log: one watermill-sql topic per partition, in ranges of transaction ids. The session
-- setting badged.partitions is the number of partitions.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE badged.settings (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    partitions  integer NOT NULL CHECK (partitions BETWEEN 1 AND 1024),
    -- The era in which the log was created or last renumbered; null during renumbering. If it is
    -- not the era of this database, the log was copied here and must be renumbered.
    settled_era bigint
);

-- These return names without the schema: of a partition's table of a kind, such as users_p03, of
-- the log of a partition, and of a range of the log.
CREATE FUNCTION badged.partition_table(kind text, partition integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN kind || '_p' || lpad(partition::text, greatest(2, length(partition::text)), '0');
CREATE FUNCTION badged.log_table(partition integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN badged.partition_table('events', partition);
CREATE FUNCTION badged.log_range_table(partition integer, number integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN badged.log_table(partition) || '_r' || number::text;

-- The id of the log, which copies of the database share. An archive belongs to one log.
CREATE TABLE badged.log_identity (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    log_id    uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO badged.log_identity DEFAULT VALUES;

-- Returns a new, unique era: milliseconds since 1970, then 20 random bits. The function is declared
-- immutable, although it is not, because generated columns require it.
CREATE FUNCTION badged.new_era(singleton boolean) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT
    RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint << 20 | floor(random() * 1048576)::bigint;

-- The era of this database. Dumps and logical replication do not copy generated columns, so a copy
-- of this row gets a new era. Copies of files keep the era and the transaction ids (ADR 38).
CREATE TABLE badged.log_home (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    era       bigint  NOT NULL GENERATED ALWAYS AS (badged.new_era(singleton)) STORED
);
INSERT INTO badged.log_home DEFAULT VALUES;

-- Returns the era of this database, the default for the era of every appended event. The function
-- is immutable, so that Postgres calls it once for each plan.
CREATE FUNCTION badged.log_era() RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

-- The ranges of each partition's log, without gaps. Archived events are removed by dropping ranges.
CREATE TABLE badged.log_ranges (
    partition_id smallint NOT NULL,
    number       integer  NOT NULL,
    -- The range has the transaction ids from starts up to, but without, ends, which is null for the
    -- last range. The first range has every lower id too.
    starts       xid8     NOT NULL,
    ends         xid8     CHECK (ends > starts),
    -- The planned end, while a check constraint proves that all ids are below it.
    bound        xid8     CHECK (bound IS NULL OR bound > starts AND ends IS NULL),
    -- When the range was created, and the next transaction id at that time.
    made_at      timestamptz NOT NULL DEFAULT current_timestamp,
    made_id      xid8     NOT NULL,
    PRIMARY KEY (partition_id, number)
);

-- A database begins with n partitions, numbered from 0: level 0. A split replaces a partition by
-- two partitions of the next level, which get its users. The n numbers of level 0 are followed by
-- 2n numbers of level 1, 4n of level 2, and so on. If f is the first number of level k, its
-- partition p has the users whose hash h satisfies h mod (n*2^k) = p - f.

-- Returns the partitions that have tables in this database, also those of other shards and those
-- that were split, in ascending order.
CREATE FUNCTION badged.existing_partitions() RETURNS SETOF integer
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT DISTINCT partition_id::integer FROM badged.log_ranges ORDER BY 1;
END;

-- Returns the first number of a partition's level, and how many numbers the level has.
CREATE FUNCTION badged.level_of(partition integer, OUT base integer, OUT modulus integer)
    LANGUAGE sql STABLE STRICT
BEGIN ATOMIC
    SELECT s.partitions * ((1 << k) - 1), s.partitions << k
    FROM badged.settings AS s, generate_series(0, 14) AS k -- up to the greatest smallint
    WHERE partition < s.partitions * ((2 << k) - 1) ORDER BY k LIMIT 1;
END;

-- Executes a statement for each of the tables; %I in the statement is the name of the table.
CREATE FUNCTION badged.for_tables(names text[], statement text) RETURNS void
    LANGUAGE plpgsql STRICT
AS $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY names LOOP
        EXECUTE format(statement, name);
    END LOOP;
END
$$;

-- Grants on the table target what other roles than the owner may do with the table source,
-- with rights to columns if with_columns is set.
CREATE FUNCTION badged.copy_grants(source text, target text, with_columns boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql STRICT
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

-- Creates a range of a partition's log. It has the grants of the log, since checks and archiving
-- read it by its own name. starts and ends are written as in CREATE TABLE … FOR VALUES.
CREATE FUNCTION badged.create_log_range(partition integer, number integer, starts text, ends text) RETURNS void
    LANGUAGE plpgsql STRICT
AS $$
DECLARE
    log  text := badged.log_table(partition);
    name text := badged.log_range_table(partition, number);
BEGIN
    EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.%I FOR VALUES FROM (%s) TO (%s)', name, log, starts, ends);
    PERFORM badged.copy_grants(log, name);
END
$$;

-- Creates the log of a partition, with one range, and the table of positions of consumer groups.
CREATE FUNCTION badged.create_log(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
AS $$
DECLARE
    log CONSTANT text := badged.log_table(partition);
BEGIN
    -- Watermill's columns and four more.
    EXECUTE format($f$
        CREATE TABLE badged.%I (
            "offset"       bigint GENERATED BY DEFAULT AS IDENTITY,
            -- Readers order events by it, so that they skip no event of a slow transaction.
            transaction_id xid8        NOT NULL DEFAULT pg_current_xact_id(),
            -- When the statement ran, not when its transaction began.
            created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
            era            bigint      NOT NULL DEFAULT badged.log_era(),
            uuid           uuid        NOT NULL, -- the key of a single event
            own            boolean     NOT NULL DEFAULT false, -- of badged, not of a publisher
            -- How many events the row has. Only for statistics, since it may be wrong.
            events         smallint    NOT NULL DEFAULT 1,
            -- An event as JSON, or an array of events; it may be compressed with zstd.
            payload        bytea,
            metadata       json,
            PRIMARY KEY (transaction_id, "offset")
        ) PARTITION BY RANGE (transaction_id)$f$, log);

    -- The largest valid event has 20,000 ids of 128 bytes, each of which JSON may escape. The
    -- policy does not bind the owner; a constraint would add a tenth to the time of each statement.
    EXECUTE format($f$
        CREATE POLICY event_size ON badged.%I USING (true)
            WITH CHECK (coalesce(pg_column_size(payload), 0) <= 8388608 AND coalesce(pg_column_size(metadata), 0) <= 65536 AND events BETWEEN 1 AND 1000)$f$, log);
    EXECUTE format('ALTER TABLE badged.%I ENABLE ROW LEVEL SECURITY', log);

    -- The last range has no end, so an event always finds its table.
    PERFORM badged.create_log_range(partition, 1, 'MINVALUE', 'MAXVALUE');
    INSERT INTO badged.log_ranges (partition_id, number, starts, made_id)
    VALUES (partition, 1, '0', pg_snapshot_xmax(pg_current_snapshot())::text::xid8);

    EXECUTE format($f$
        CREATE TABLE badged.%I (
            consumer_group                varchar(255) PRIMARY KEY,
            offset_acked                  bigint,
            last_processed_transaction_id xid8   NOT NULL,
            -- For the projector: transactions that were open when the position passed them, and
            -- whose events it has not folded yet.
            pending                       xid8[] NOT NULL DEFAULT '{}',
            folded                        bigint NOT NULL DEFAULT 0, -- events, by the projector
            era                           bigint NOT NULL DEFAULT badged.log_era(),
            -- For the projector: grows with every change of the row in badged.partitions. The
            -- statement that moves the position compares both.
            revision                      bigint NOT NULL DEFAULT 0
        ) WITH (fillfactor = 50)$f$, log || '_offsets');
END
$$;

DO $$
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        PERFORM badged.create_log(p);
        EXECUTE format(
            $f$INSERT INTO badged.%I VALUES ('projector', 0, '0'), ('badged_notifier', 0, '0')$f$,
            badged.log_table(p) || '_offsets');
    END LOOP;
END
$$;

-- Waits until the current batch of every partition has ended, and blocks new batches until this
-- transaction ends. A migration calls it before it alters tables that batches write: otherwise
-- migration and batch could lock tables in opposite orders.
CREATE FUNCTION badged.wait_for_batches() RETURNS void
    LANGUAGE sql
    RETURN badged.for_tables(
        ARRAY(SELECT badged.log_table(p) || '_offsets' FROM badged.existing_partitions() AS p),
        'LOCK TABLE badged.%I IN EXCLUSIVE MODE');

-- Creates ranges of a partition's log before events reach them. Once half of the ids between the
-- creation of the last range and its start have been assigned, the last range gets an end, and a
-- new last range begins there. A range has about the ids of one span at the recent rate, and at
-- least least_ids. If the function returns true, call it again, in another transaction.
--
-- An empty or small last range gets its end at once. A large one first gets a check constraint that
-- proves all its ids to be below the end, while other sessions read and write. If the end were never
-- set, because all processes stopped or a reader locked the table, the constraint would refuse
-- events once ids reach the end. So the end is about one span ahead, and the constraint is dropped
-- if less than a quarter of that is left. Publishers queue behind the function, so it waits briefly.
CREATE FUNCTION badged.extend_log(partition integer, span interval, least_ids bigint) RETURNS boolean
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
    -- In bytes: a scan delays no other session.
    small_table CONSTANT bigint := 16 * 1024 * 1024;
    -- The least and the most ids between the next id and the end in a check constraint.
    check_least CONSTANT bigint := 4 * 1024 * 1024;
    check_most  CONSTANT bigint := 512 * 1024 * 1024;
    -- A burst must not create a range that lasts for years or takes long to read.
    most_ids    CONSTANT bigint := 32 * 1024 * 1024;
    log    text := badged.log_table(partition);
    last   badged.log_ranges;
    name   text;
    starts bigint;
    made   bigint;
    next   bigint;
    rate   bigint; -- recent rate in ids a span
    ahead  bigint; -- ids from next to the end in a check constraint
    width  bigint;
    till   bigint;
BEGIN
    -- Check first without a lock, and then again with the lock.
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

-- Returns hashes of the texts between quotation marks in a payload of the log. An index on them
-- finds the events that may name a user, a room or an event. The hash 0 stands for a payload
-- that must be read instead: it is compressed, has escapes, is long or is no JSON. Omitted are
-- the names of members that every event has, its time, and the characters between texts.
CREATE FUNCTION badged.log_names(payload bytea) RETURNS integer[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 1000
AS $$
DECLARE
    parts text[];
BEGIN
    IF payload = 'null'::bytea THEN
        RETURN '{}'; -- an event that was erased
    ELSIF octet_length(payload) > 100000 OR substr(payload, 1, 1) NOT IN ('{'::bytea, '['::bytea) OR position('\\'::bytea IN payload) > 0 THEN
        RETURN '{0}';
    END IF;
    parts := string_to_array(encode(payload, 'escape'), '"');
    RETURN ARRAY(
        SELECT hashtext(part) FROM unnest(parts) WITH ORDINALITY AS p (part, n)
        WHERE CASE n % 2
            WHEN 1 THEN translate(part, ':,{}[] 0123456789.+-truefalsn', '') <> '' OR translate(part, ':,{}[]', '') = part
            ELSE (parts[(n + 1)::integer] NOT LIKE ':%' OR part <> ALL ('{specversion,id,source,type,time,data,conversation_id,seq,user_ids,sender_id}'))
                AND NOT coalesce(parts[(n - 1)::integer] LIKE ':%' AND parts[(n - 2)::integer] IN ('specversion', 'time'), false) END
    );
END
$$;

-- Returns the hashes to search for: a payload that may contain one of the texts has one.
CREATE FUNCTION badged.log_names_of(texts text[]) RETURNS integer[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 0 || ARRAY(SELECT hashtext(encode(convert_to(t, 'UTF8'), 'escape')) FROM unnest(texts) AS t);

-- Builds the index of names in one range of a partition: the first without this index whose
-- events are complete and folded. Returns whether it built one. Erasures cannot write meanwhile.
CREATE FUNCTION badged.index_log(partition integer) RETURNS boolean
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
    name   text;
    folded xid8;
BEGIN
    EXECUTE format($f$SELECT least(last_processed_transaction_id, pending[1]) FROM badged.%I WHERE consumer_group = 'projector'$f$, badged.log_table(partition) || '_offsets')
    INTO folded;
    SELECT badged.log_range_table(partition, number) INTO name FROM badged.log_ranges AS r
    WHERE r.partition_id = partition AND ends <= folded AND ends <= pg_snapshot_xmin(pg_current_snapshot())::text::xid8
      AND to_regclass(format('badged.%I', badged.log_range_table(partition, number) || '_names')) IS NULL
    ORDER BY number LIMIT 1;
    IF name IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE INDEX %I ON badged.%I USING gin (badged.log_names(payload)) WITH (fastupdate = off)', name || '_names', name);
    EXECUTE format('ANALYZE badged.%I', name); -- statistics on the index: rows for each name, and rows that must be read
    RETURN true;
END
$$;

-- Adapts the ranges of a renumbered partition, whose ids may be far ahead of its new events. If
-- only the first range has events, the other ranges are dropped.
CREATE FUNCTION badged.settle_log_ranges(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
    log   text    := badged.log_table(partition);
    first integer := (SELECT min(number) FROM badged.log_ranges AS r WHERE r.partition_id = partition);
    name  text    := badged.log_range_table(partition, first);
    next  xid8    := pg_snapshot_xmax(pg_current_snapshot())::text::xid8;
    others text[];
    other text;
    alone boolean := true;
    found boolean;
BEGIN
    EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', log);
    others := ARRAY(
        SELECT badged.log_range_table(partition, number) FROM badged.log_ranges AS r
        WHERE r.partition_id = partition AND number > first);
    FOREACH other IN ARRAY others LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I)', other) INTO found;
        alone := alone AND NOT found;
    END LOOP;
    IF alone THEN
        PERFORM badged.for_tables(others, 'DROP TABLE badged.%I');
        DELETE FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number > first;
        EXECUTE format('ALTER TABLE badged.%I DETACH PARTITION badged.%I', log, name);
        EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT IF EXISTS bound', name);
        EXECUTE format('ALTER TABLE badged.%I ATTACH PARTITION badged.%I FOR VALUES FROM (MINVALUE) TO (MAXVALUE)', log, name);
    END IF;
    -- Events are appended to these ranges.
    PERFORM badged.for_tables(ARRAY(
        SELECT badged.log_range_table(partition, number) || '_names' FROM badged.log_ranges AS r
        WHERE r.partition_id = partition AND (alone OR ends > next)
    ), 'DROP INDEX IF EXISTS badged.%I');
    UPDATE badged.log_ranges AS r
    SET ends = CASE WHEN NOT alone THEN ends END, bound = CASE WHEN NOT alone THEN bound END, made_at = current_timestamp, made_id = next
    WHERE r.partition_id = partition AND number = (SELECT max(number) FROM badged.log_ranges AS r WHERE r.partition_id = partition);
END
$$;

-- Moves events of transactions that committed late to places directly behind a position, in the
-- order of the arrays, so that the order of the log remains the order of folding.
CREATE FUNCTION badged.move_late(partition integer, transactions bigint[], offsets bigint[], behind_transaction bigint, behind_offset bigint) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    moved bigint;
BEGIN
    EXECUTE format($f$
        UPDATE badged.%I AS e
        SET transaction_id = $3::text::xid8, "offset" = $4 + l.place
        FROM unnest($1, $2) WITH ORDINALITY AS l (id, "offset", place)
        WHERE e.transaction_id = l.id::text::xid8 AND e."offset" = l."offset" AND l.id <= $3
          -- So that ranges without these events are not locked.
          AND e.transaction_id = ANY ($1::text[]::xid8[])$f$, badged.log_table(partition))
    USING transactions, offsets, behind_transaction, behind_offset;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> cardinality(transactions) THEN
        RAISE EXCEPTION '% of % late events are not in the log any more', cardinality(transactions) - moved, cardinality(transactions)
            USING ERRCODE = 'no_data_found';
    END IF;
END
$$;

-- Returns whether the log, or a part of it, was copied here and has not been renumbered. If only
-- some tables were copied, the eras of positions and of the last event of each partition show it. A
-- projector's position ahead of all transaction ids is a copy too.
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
        -- Renumbered events, with the id 3, still have their former era.
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

-- Events that a projector could not decode or fold, and messages of brokers that are no events.
-- Only these messages have an origin, and they have no place in the log.
CREATE TABLE badged.dead_letters (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id   smallint,
    transaction_id xid8,
    "offset"       bigint,
    -- Of the event in its row of the log, from 0 on.
    index          smallint    NOT NULL DEFAULT 0,
    uuid           uuid,
    -- The event, or the whole row if that cannot be split into events; null if it is too large.
    payload        bytea,
    reason         text        NOT NULL,
    -- The users for which folding failed; null if the event was folded for none.
    user_ids       text[],
    created_at     timestamptz NOT NULL DEFAULT current_timestamp,
    origin         text,
    UNIQUE (partition_id, transaction_id, "offset", index),
    CONSTRAINT dead_letters_have_a_place CHECK (num_nulls(partition_id, transaction_id, "offset", uuid) = CASE WHEN origin IS NULL THEN 0 ELSE 4 END)
);

-- Returns the parts of a text between quotation marks, so that an index finds the texts that may
-- name a user, in JSON or quoted. A single backslash stands for a text that must be read, since
-- it has escapes or is long. The function is PL/pgSQL, since one in SQL is 20 times as slow.
CREATE FUNCTION badged.words(content text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN CASE WHEN length(content) > 100000 OR position('\' IN content) > 0 THEN '["\\"]'::jsonb ELSE to_jsonb(string_to_array(content, '"')) END;
END
$$;

-- Returns the words of a dead letter. Its payload may be any bytes: bytes other than ASCII become
-- \nnn, and a backslash becomes two backslashes.
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

-- Returns the words to search for: a text or dead letter that may name the user has one of them.
CREATE FUNCTION badged.words_of_user(user_id text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['\', user_id] || string_to_array(user_id, '"') || string_to_array(encode(convert_to(user_id, 'UTF8'), 'escape'), '"');

-- For exporting and erasing a user. With the pending list a dead letter writes 2.2 KB of WAL, also
-- alone in its transaction; without this index 0.6 KB, and with fastupdate = off 17 KB.
CREATE INDEX dead_letters_words ON badged.dead_letters USING gin (badged.words(payload, reason, user_ids)) WITH (gin_pending_list_limit = 256);

-- The places of events whose dead letters were settled and deleted. A replay must not fold these
-- events at their places, even if the release can decode them.
CREATE TABLE badged.settled_letters (
    partition_id   smallint NOT NULL,
    transaction_id xid8     NOT NULL,
    "offset"       bigint   NOT NULL,
    index          smallint NOT NULL,
    user_ids       text[], -- as in badged.dead_letters
    PRIMARY KEY (partition_id, transaction_id, "offset", index)
);
CREATE INDEX settled_letters_users ON badged.settled_letters USING gin (user_ids) WHERE user_ids IS NOT NULL;

-- Turns events into dead letters if their transaction id has not been assigned yet, and returns
-- their number. Only the owner of the schema can write such an event. It would stay unread until
-- Postgres reaches the id, and no range could end before it.
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
            -- The snapshot must be of this statement: compared with an earlier snapshot,
            -- events appended in between would seem to have unassigned ids.
            WHERE transaction_id >= (SELECT pg_snapshot_xmax(pg_current_snapshot())) AND era = $2
            RETURNING transaction_id, "offset", uuid, payload
        )
        INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason)
        SELECT $1, transaction_id, "offset", uuid, CASE WHEN octet_length(payload) <= 8388608 THEN payload END, 'it had the transaction id ' || transaction_id::text || ', which Postgres had not assigned yet'
        FROM unissued$f$, badged.log_table(partition))
    USING partition, badged.log_era();
    GET DIAGNOSTICS buried = ROW_COUNT;
    RETURN buried;
END
$$;
-- +goose StatementEnd
