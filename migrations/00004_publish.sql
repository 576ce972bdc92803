-- Publishing in plain SQL: badged.publish and badged.publish_batch append events within the
-- caller's own transaction. Their rows have the same events as the rows of events.Log, but with
-- members in the order of jsonb, and not compressed. They set the search_path for the PL/pgSQL
-- functions that they call.

-- +goose Up
-- +goose StatementBegin
-- Returns the partition of a user: the first four bytes of the SHA-256 of its id, big-endian,
-- modulo the number of partitions. If it were declared strict or immutable, Postgres would not
-- inline it, since convert_to counts as stable, and it would take five times as long.
CREATE FUNCTION badged.partition_of(user_id text, partitions integer) RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (('x' || left(encode(sha256(convert_to(user_id, 'UTF8')), 'hex'), 8))::bit(32)::bigint % partitions)::integer;

-- Returns the hash of a user, as events.PartitionOf computes it.
CREATE FUNCTION badged.user_hash(user_id text) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ('x' || left(encode(sha256(convert_to(user_id, 'UTF8')), 'hex'), 8))::bit(32)::bigint;

-- Returns the key of an event: a version 8 UUID from the SHA-256 of a namespace, the source and the
-- id, which have no control characters. The bits that are set are the version and the variant.
CREATE FUNCTION badged.event_key(source text, id text) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN encode(substr(
        set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
            sha256('\x6c1d7a345b0f5d5e9f0c0c5f1b7b9ad1'::bytea || convert_to(source, 'UTF8') || '\x00'::bytea || convert_to(id, 'UTF8')),
            52, 0), 53, 0), 54, 0), 55, 1), 70, 0), 71, 1), 1, 16), 'hex')::uuid;

-- Returns the metadata of an event: its trace context, null without one.
CREATE FUNCTION badged.event_metadata(event jsonb) RETURNS json
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN event ? 'traceparent' THEN
        json_strip_nulls(json_build_object('traceparent', event -> 'traceparent', 'tracestate', event -> 'tracestate'))
    END;

-- Returns an event with a part of its users and mentions.
CREATE FUNCTION badged.event_share(event jsonb, users jsonb, mentions jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN CASE WHEN event -> 'data' ? 'mentioned_user_ids'
        THEN jsonb_set(event, '{data}', ((event -> 'data') - 'mentioned_user_ids') || jsonb_strip_nulls(jsonb_build_object('user_ids', users, 'mentioned_user_ids', mentions)))
        ELSE jsonb_set(event, '{data,user_ids}', users)
    END;

-- Creates the functions that depend on which partitions have users. Two have one static INSERT for
-- each partition, since PL/pgSQL caches the plans of static statements. The others return the
-- partitions of users: the remainder of the hash, or after a split an element of an array.
--
-- Rows are inserted into the partitioned table of the log, since its last range changes. The
-- functions have few expressions with few calls: PL/pgSQL prepares each expression in each
-- transaction, and a call of another function takes half as long as appending a row.
CREATE FUNCTION badged.make_append_functions() RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    n        CONSTANT integer := (SELECT s.partitions FROM badged.settings AS s);
    -- Of the highest existing level.
    modulus  integer := (SELECT l.modulus FROM (SELECT max(e) AS p FROM badged.existing_partitions() AS e) AS last, badged.level_of(last.p) AS l);
    -- The partition of users, by the remainder of their hash.
    living   integer[];
    -- A binary search for the partition p, built from its leaves; firsts has their first
    -- partitions.
    search   text[] := '{}';
    firsts   integer[] := '{}';
    wider    text[];
    starts   integer[];
    hash_at  text; -- an expression for the partition of a hash
    user_at  text; -- an expression for the partition of a user ID
    p        integer;
BEGIN
    -- Prefer the partition that this database holds, then the one that the map assigns to a shard.
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
        hash_at := format('(hash %% %s)::integer', n);
        user_at := format('badged.partition_of(ID, %s)', n);
    ELSE
        hash_at := format('(%L::integer[])[1 + (hash %% %s)::integer]', living, modulus);
        user_at := format('(%L::integer[])[1 + badged.partition_of(ID, %s)]', living, modulus);
    END IF;
    EXECUTE format($f$CREATE OR REPLACE FUNCTION badged.living_partition(hash bigint) RETURNS integer
        LANGUAGE sql STABLE PARALLEL SAFE RETURN %s$f$, hash_at);
    EXECUTE format($f$CREATE OR REPLACE FUNCTION badged.partition_of(user_id text) RETURNS integer
        LANGUAGE sql STABLE STRICT PARALLEL SAFE
        SECURITY DEFINER SET search_path = pg_catalog, pg_temp
        RETURN %s$f$, replace(user_at, 'ID', 'user_id'));

    -- With split partitions: an old snapshot may show rooms there, whose appends must be refused.
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

    -- Appends a valid event that names few users: to the partition of each, with the users of that
    -- partition. A loop costs less than starting a query.
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
SELECT badged.make_append_functions();

-- Appends one row with some events of a JSON array: those with these numbers, counted from 1.
CREATE FUNCTION badged.append_slice(partition integer, events jsonb, numbers integer[], payloads text[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    event CONSTANT jsonb := events -> (numbers[1] - 1);
BEGIN
    IF cardinality(numbers) = 1 THEN
        PERFORM badged.append_row(partition, badged.event_key(event ->> 'source', event ->> 'id'), convert_to(payloads[1], 'UTF8'), badged.event_metadata(event), 1);
    ELSE
        -- A random UUID of version 4 is never an event key: keys have version 8.
        PERFORM badged.append_row(partition, gen_random_uuid(), convert_to('[' || array_to_string(payloads, ',') || ']', 'UTF8'), NULL, cardinality(numbers));
    END IF;
END
$$;

-- Appends the events of a JSON array, which must be valid: one row for each partition, or
-- several if they exceed the limits of a row.
CREATE FUNCTION badged.append_events(events jsonb) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    -- The limits of a row with several events, as in the package eventbatch.
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
                    OFFSET 0 -- prevents that the hash is computed four times
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

-- Appends an event. It returns the position, which the HTTP API accepts as at_least.
CREATE FUNCTION badged.publish(event jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    data jsonb := event -> 'data';
BEGIN
    IF badged.is_plain(event, data) IS NOT TRUE THEN
        event := jsonb_strip_nulls(event);
        PERFORM badged.check_events(jsonb_build_array(event), false);
        event := badged.normal_event(event);
        data := event -> 'data';
    END IF;
    -- Small data name few users.
    IF pg_column_size(data) <= 512 AND NOT starts_with(event ->> 'type', 'room.') THEN
        IF NOT event ? 'time' THEN
            event := event || badged.time_now();
        END IF;
        RETURN badged.append_small(event, data);
    END IF;
    RETURN badged.append_events(jsonb_build_array(event));
END
$$;

-- Appends the events of a JSON array, at most 10,000. For an empty array it returns 0.
CREATE FUNCTION badged.publish_batch(events jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    events := badged.accept_batch(events);
    IF events = '[]' THEN
        RETURN 0;
    END IF;
    RETURN badged.append_events(events);
END
$$;

-- Returns the position for at_least that belongs to a transaction id of the current timeline:
-- the timeline times 2^44, plus the transaction id. Call it in the transaction that appends.
CREATE FUNCTION badged.position_of(transaction_id bigint) RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
RETURN transaction_id | (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint << 44);
-- +goose StatementEnd
