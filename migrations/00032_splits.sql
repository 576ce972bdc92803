-- Partitions beyond the first numbers: those into which others were split.
--
-- A database begins with n partitions, numbered from 0. When one is split, two others
-- take its users, and it ends. They are of the next level: after the n numbers of the
-- first come 2n of the second, 4n of the third, and so on. A user with a hash h is in a
-- partition of level k if h mod n*2^k is the number less the first number of the level.

-- +goose Up

-- Returns the partitions that have tables in this database, in ascending order: those
-- that it holds, those of other shards, and those that were split.
-- +goose StatementBegin
CREATE FUNCTION badged.existing_partitions() RETURNS SETOF integer
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT DISTINCT partition_id::integer FROM badged.log_ranges ORDER BY 1;
END;
-- +goose StatementEnd

-- Returns the first number of the level of a partition, and how many the level has.
-- +goose StatementBegin
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
-- +goose StatementEnd

-- Whether the session moves or splits the partition: it passes the gates, and notes no
-- changes.
CREATE FUNCTION badged.is_moved_here(partition integer) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    RETURN coalesce(partition::text = ANY (string_to_array(current_setting('badged.moving', true), ',')), false);

-- Refuses to use a partition that this database does not hold.
-- +goose StatementBegin
CREATE FUNCTION badged.refuse_partition(partition integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner text := (SELECT m.shard FROM badged.shard_partitions AS m WHERE m.partition_id = partition);
BEGIN
    IF owner = '' OR NOT EXISTS (SELECT FROM badged.shard) THEN
        RAISE EXCEPTION 'partition % was split into two', partition
            USING ERRCODE = 'BD100', CONSTRAINT = 'not_held', HINT = 'Run the transaction again: it finds the partitions that have taken its users.';
    END IF;
    RAISE EXCEPTION 'partition % is not on this shard, but on %', partition, coalesce(owner, 'another')
        USING ERRCODE = 'BD100', CONSTRAINT = 'not_held', HINT = 'Publish to badged, which knows the shards.';
END
$$;
-- +goose StatementEnd

-- What went through all partitions by their number goes through those that exist.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.wait_for_batches() RETURNS void
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
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.log_needs_repair() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    p integer;
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
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.forget_tail(tail text) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    p integer;
BEGIN
    IF NOT EXISTS (SELECT FROM badged.tail_partitions WHERE consumer_group = tail) THEN
        RAISE EXCEPTION 'there is no tail %', tail USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR p IN SELECT badged.existing_partitions() LOOP
        EXECUTE format('DELETE FROM badged.%I WHERE consumer_group = $1', badged.log_table(p) || '_offsets') USING tail;
    END LOOP;
    DELETE FROM badged.tail_partitions WHERE consumer_group = tail;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.create_staging_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live    text;
    options text;
BEGIN
    IF partition NOT IN (SELECT badged.existing_partitions()) THEN
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

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.create_baseline_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    baseline text;
BEGIN
    IF partition NOT IN (SELECT badged.existing_partitions()) THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH baseline IN ARRAY badged.baseline_tables(partition) LOOP
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING ALL)', baseline || '_next', baseline);
        PERFORM badged.copy_grants(baseline, baseline || '_next');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Letters of brokers wait for webhooks in the first partition.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.tell_of_dead_letters() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO badged.webhook_queue (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
    SELECT coalesce(b.partition_id, (SELECT min(p.partition_id) FROM badged.partitions AS p), 0), w.name, 'deadletter.buried', b.id::text, clock_timestamp(), clock_timestamp(), 1, 0
    FROM buried AS b, badged.webhooks AS w
    WHERE 'deadletter.buried' = ANY (w.events) AND w.state <> 'disabled'
      AND NOT badged.is_moved_here(b.partition_id);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.pass_gate(class integer, partition integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF badged.is_moved_here(partition) THEN
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
        PERFORM badged.refuse_partition(partition);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.refuse_not_held() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM badged.refuse_partition(TG_ARGV[0]::integer);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.watch_changes(partition integer, changed text, kind text, shared boolean, key text[]) RETURNS void
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
    -- Of no partition, or as badged.is_moved_here: calling it for each row takes long.
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
-- +goose StatementEnd


-- The hash of a user, as PartitionOf of the package events has it.
CREATE FUNCTION badged.user_hash(user_id text) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ('x' || left(encode(sha256(convert_to(user_id, 'UTF8')), 'hex'), 8))::bit(32)::bigint;

-- Makes the functions that depend on which partitions have users: two with an INSERT for
-- each, since plpgsql keeps the plans of static statements, and two that say where users
-- are. Postgres inlines the latter where rows are appended. Before the first split they
-- take the remainder of the hash; after it, an element of an array.
--
-- Rows go to the table of the whole log, whose last range changes. Few expressions, with
-- few functions each, are faster than many: plpgsql prepares each in each transaction, and
-- that takes longer than evaluating it. Calling another function costs half as much as
-- appending a row.
-- +goose StatementBegin
CREATE FUNCTION badged.make_append_functions() RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n        CONSTANT integer := (SELECT s.partitions FROM badged.settings AS s);
    -- How many numbers the last level has that exists.
    modulus  integer := (SELECT l.modulus FROM (SELECT max(e) AS p FROM badged.existing_partitions() AS e) AS last, badged.level_of(last.p) AS l);
    -- By remainder, the partition that has the users.
    living   integer[];
    -- A binary search for the partition p. It is built from the leaves, of which firsts
    -- has the first partition.
    search   text[] := '{}';
    firsts   integer[] := '{}';
    wider    text[];
    starts   integer[];
    user_at  text; -- an expression for the partition of a user ID
    p        integer;
BEGIN
    -- The one that this database holds; else the one that the map gives to a shard.
    WITH level AS (
        SELECT n << k AS modulus, n * ((1 << k) - 1) AS base FROM generate_series(0, 10) AS k WHERE n << k <= modulus
    )
    SELECT array_agg((
        SELECT c.p
        FROM (SELECT base + remainder % level.modulus AS p FROM level) AS c
        ORDER BY EXISTS (SELECT FROM badged.partitions AS h WHERE h.partition_id = c.p) DESC,
            EXISTS (SELECT FROM badged.shard_partitions AS m WHERE m.partition_id = c.p AND m.shard <> '') DESC, c.p
        LIMIT 1
    ) ORDER BY remainder) INTO living
    FROM generate_series(0, modulus - 1) AS remainder;

    IF modulus = n THEN
        user_at := format('badged.partition_of(ID, %s)', n);
        EXECUTE format('CREATE OR REPLACE FUNCTION badged.living_partition(hash bigint) RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE RETURN (hash %% %s)::integer', n);
        EXECUTE $f$CREATE OR REPLACE FUNCTION badged.partition_of(user_id text) RETURNS integer
            LANGUAGE sql STABLE STRICT PARALLEL SAFE
            SECURITY DEFINER SET search_path = pg_catalog, pg_temp
            RETURN (SELECT badged.partition_of(user_id, s.partitions) FROM badged.settings AS s)$f$;
    ELSE
        user_at := format('(%L::integer[])[1 + badged.partition_of(ID, %s)]', living, modulus);
        EXECUTE format('CREATE OR REPLACE FUNCTION badged.living_partition(hash bigint) RETURNS integer LANGUAGE sql STABLE PARALLEL SAFE RETURN (%L::integer[])[1 + (hash %% %s)::integer]', living, modulus);
        EXECUTE format($f$CREATE OR REPLACE FUNCTION badged.partition_of(user_id text) RETURNS integer
            LANGUAGE sql STABLE STRICT PARALLEL SAFE
            SECURITY DEFINER SET search_path = pg_catalog, pg_temp
            RETURN %s$f$, replace(user_at, 'ID', 'user_id'));
    END IF;

    -- An old snapshot shows rooms in partitions that were split since, which refuse.
    FOR p IN SELECT l FROM unnest(living) AS l UNION SELECT badged.existing_partitions() ORDER BY 1 LOOP
        firsts := firsts || p;
        search := search || CASE WHEN p IN (SELECT badged.existing_partitions())
            THEN format('INSERT INTO badged.%I (uuid, payload, metadata, events) VALUES (key, payload, metadata, events);', badged.log_table(p))
            ELSE format('PERFORM badged.refuse_partition(%s);', p) END;
    END LOOP;
    WHILE cardinality(search) > 1 LOOP
        wider := '{}';
        starts := '{}';
        FOR i IN 1 .. cardinality(search) BY 2 LOOP
            starts := starts || firsts[i];
            wider := wider || CASE WHEN i < cardinality(search)
                THEN format('IF p < %s THEN %s ELSE %s END IF;', firsts[i + 1], search[i], search[i + 1])
                ELSE search[i]
            END;
        END LOOP;
        search := wider;
        firsts := starts;
    END LOOP;

    -- Appends a row.
    EXECUTE format($f$
        CREATE OR REPLACE FUNCTION badged.append_row(p integer, key uuid, payload bytea, metadata json, events integer) RETURNS void
            LANGUAGE plpgsql
        AS $b$
#variable_conflict use_variable
BEGIN
    %s
END
$b$
    $f$, search[1]);

    -- Appends a valid event that names few users: a row in every partition that holds
    -- some of them, with just those. A loop costs less than starting a query.
    EXECUTE format($f$
        CREATE OR REPLACE FUNCTION badged.append_small(event jsonb, data jsonb) RETURNS bigint
            LANGUAGE plpgsql
        AS $b$
#variable_conflict use_variable
DECLARE
    users     CONSTANT jsonb := data -> 'user_ids';
    mentions  CONSTANT jsonb := data -> 'mentioned_user_ids';
    key       CONSTANT uuid  := badged.event_key(event ->> 'source', event ->> 'id');
    events    CONSTANT integer := 1;
    metadata  json;
    payload   bytea;
    -- By partition.
    named     jsonb[];
    mentioned jsonb[];
    p         integer;
BEGIN
    IF event ? 'traceparent' THEN
        metadata := badged.event_metadata(event);
    END IF;
    FOR i IN 0 .. coalesce(jsonb_array_length(users), 0) - 1 LOOP
        p := %1$s;
        named[p] := coalesce(named[p], '[]') || (users -> i);
    END LOOP;
    FOR i IN 0 .. coalesce(jsonb_array_length(mentions), 0) - 1 LOOP
        p := %2$s;
        mentioned[p] := coalesce(mentioned[p], '[]') || (mentions -> i);
    END LOOP;
    FOR p IN coalesce(array_lower(named, 1), 0) .. coalesce(array_upper(named, 1), -1) LOOP
        IF named[p] IS NULL THEN
            CONTINUE;
        ELSIF named[p] = users THEN
            payload := convert_to(event::text, 'UTF8');
        ELSIF mentions IS NULL THEN
            payload := convert_to(jsonb_set(event, '{data,user_ids}', named[p])::text, 'UTF8');
        ELSE
            payload := convert_to(badged.event_share(event, named[p], mentioned[p])::text, 'UTF8');
        END IF;
        %3$s
    END LOOP;
    RETURN pg_current_xact_id()::text::bigint;
END
$b$
    $f$, replace(user_at, 'ID', 'users ->> i'), replace(user_at, 'ID', 'mentions ->> i'), search[1]);
END
$$;
-- +goose StatementEnd
SELECT badged.make_append_functions();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.append_events(events jsonb) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    -- The most events and bytes of a row with several events, as in the package
    -- eventbatch.
    most_events CONSTANT integer := 1000;
    most_bytes  CONSTANT integer := 1024 * 1024;
    now         CONSTANT jsonb   := badged.time_now();
    share       record;
    begins      integer; -- the first event of the row
    size        integer; -- of the row, with the brackets
BEGIN
    FOR share IN
        WITH event AS MATERIALIZED (
            SELECT i::integer AS i, CASE WHEN e ? 'time' THEN e ELSE e || now END AS e, e -> 'data' -> 'user_ids' AS users, e -> 'data' -> 'mentioned_user_ids' AS mentions
            FROM jsonb_array_elements(events) WITH ORDINALITY AS x (e, i)
        ),
        named AS (
            SELECT i, p, to_jsonb(array_agg(id) FILTER (WHERE n <= users)) AS users, to_jsonb(array_agg(id) FILTER (WHERE n > users)) AS mentions
            FROM (
                SELECT i, users, n, id,
                    badged.living_partition((get_byte(hash, 0)::bigint << 24) + (get_byte(hash, 1) << 16) + (get_byte(hash, 2) << 8) + get_byte(hash, 3)) AS p
                FROM (
                    SELECT i, jsonb_array_length(users) AS users, n, id, sha256(convert_to(id, 'UTF8')) AS hash
                    FROM event, jsonb_array_elements_text(CASE WHEN mentions IS NULL THEN users ELSE users || mentions END) WITH ORDINALITY AS x (id, n)
                    OFFSET 0 -- hashes once, not four times
                ) AS hashed
            ) AS placed
            GROUP BY i, p
            UNION ALL
            -- Messages to rooms.
            SELECT i, p, NULL, (
                SELECT to_jsonb(array_agg(id))
                FROM jsonb_array_elements_text(mentions) AS id
                WHERE badged.living_partition(badged.user_hash(id)) = p
            )
            FROM event
            CROSS JOIN (SELECT partition_id FROM badged.partitions) AS held (p)
            WHERE users IS NULL
        )
        SELECT p::integer AS partition,
            array_agg(i) AS numbers,
            array_agg(payload) AS payloads,
            array_agg(octet_length(payload) + 1) AS sizes,
            sum(octet_length(payload) + 1) AS bytes
        FROM (
            SELECT i, p, (CASE WHEN named.users = event.users OR event.users IS NULL AND event.mentions IS NULL THEN e
                ELSE badged.event_share(e, named.users, named.mentions) END)::text AS payload
            FROM named
            JOIN event USING (i)
            -- Sorted once here, rather than for each aggregate.
            ORDER BY p, i
        ) AS share
        GROUP BY p
        ORDER BY p
    LOOP
        begins := 1;
        IF cardinality(share.numbers) > most_events OR share.bytes >= most_bytes THEN
            size := 1;
            FOR i IN 1 .. cardinality(share.sizes) LOOP
                IF i - begins = most_events OR i > begins AND size + share.sizes[i] > most_bytes THEN
                    PERFORM badged.append_slice(share.partition, events, share.numbers[begins:i - 1], share.payloads[begins:i - 1]);
                    begins := i;
                    size := 1;
                END IF;
                size := size + share.sizes[i];
            END LOOP;
        END IF;
        PERFORM badged.append_slice(share.partition, events, share.numbers[begins:], share.payloads[begins:]);
    END LOOP;
    RETURN pg_current_xact_id()::text::bigint;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.existing_partitions(), badged.level_of(integer), badged.is_moved_here(integer), badged.refuse_partition(integer), badged.user_hash(text),
    badged.living_partition(bigint), badged.make_append_functions() FROM PUBLIC;
