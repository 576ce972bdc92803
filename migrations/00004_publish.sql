-- Publishing in plain SQL: badged.publish and badged.publish_batch append
-- events within the caller's own transaction, from any language.
--
-- They write rows with the same events as events.Log does, in jsonb's order of names
-- and not compressed. A role that publishes needs no more
-- than
--
--     GRANT USAGE ON SCHEMA badged TO backend;
--     GRANT EXECUTE ON FUNCTION badged.publish(jsonb), badged.publish_batch(jsonb) TO backend;
--
-- The two set the search_path for the functions that they call; those written
-- as an expression are bound to what they mean when they are created.

-- +goose Up

-- The partition of a user among so many: the first four bytes of the SHA-256
-- of its id, big-endian, modulo their number. It is declared neither
-- strict nor immutable, which it is: Postgres would not inline it then, since
-- convert_to counts as stable, and it would take five times as long.
CREATE FUNCTION badged.partition_of(user_id text, partitions integer) RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (('x' || left(encode(sha256(convert_to(user_id, 'UTF8')), 'hex'), 8))::bit(32)::bigint % partitions)::integer;

-- The partition of a user in this database.
CREATE FUNCTION badged.partition_of(user_id text) RETURNS integer
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN (SELECT badged.partition_of(user_id, s.partitions) FROM badged.settings AS s);

-- The key of an event: a version 8 UUID of the SHA-256 of a namespace, the
-- source and the id. Neither has control characters, so that no other pair
-- gives the same bytes. The bits that are set are the version and the variant.
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

-- Returns a valid event without what has no effect: attributes that badged ignores
-- and empty ones. It gets a time in the usual form, if it has one.
-- +goose StatementBegin
CREATE FUNCTION badged.normal_event(event jsonb) RETURNS jsonb
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    at text := badged.utc_time(event ->> 'time');
BEGIN
    event := event - '{datacontenttype,dataschema,subject,time}'::text[];
    IF at <> '0001-01-01T00:00:00Z' THEN -- Go's zero time, which means none
        event := event || jsonb_build_object('time', at);
    END IF;
    IF event ->> 'traceparent' = '' THEN
        event := event - 'traceparent';
    END IF;
    IF event ->> 'tracestate' = '' THEN
        event := event - 'tracestate';
    END IF;
    RETURN event;
END
$$;
-- +goose StatementEnd

-- Returns the attribute of an event that happens now.
CREATE FUNCTION badged.time_now() RETURNS jsonb
    LANGUAGE sql VOLATILE
    RETURN jsonb_build_object('time', (to_jsonb(clock_timestamp() AT TIME ZONE 'UTC') #>> '{}') || 'Z');

-- Returns an event with some of its users.
CREATE FUNCTION badged.event_share(event jsonb, users jsonb, mentions jsonb) RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN CASE WHEN event -> 'data' ? 'mentioned_user_ids'
        THEN jsonb_set(event, '{data}', ((event -> 'data') - 'mentioned_user_ids') || jsonb_strip_nulls(jsonb_build_object('user_ids', users, 'mentioned_user_ids', mentions)))
        ELSE jsonb_set(event, '{data,user_ids}', users)
    END;

-- Two functions with an INSERT for each partition: plpgsql keeps the plans of static
-- statements, while EXECUTE plans anew each time. Rows go to the table of the whole
-- log, whose last range changes.
--
-- Few expressions, with few functions each, are faster than many: plpgsql prepares
-- each in each transaction, and that takes longer than evaluating it. Calling another
-- function costs half as much as appending a row.
-- +goose StatementBegin
DO $$
DECLARE
    partitions CONSTANT integer := (SELECT s.partitions FROM badged.settings AS s);
    -- A binary search for the partition p. It is built from the leaves: each element
    -- covers so many partitions.
    search     text[]  := '{}';
    wider      text[];
    covers     integer := 1;
BEGIN
    FOR p IN 0 .. partitions - 1 LOOP
        search := search || format('INSERT INTO badged.%I (uuid, payload, metadata, events) VALUES (key, payload, metadata, events);', badged.log_table(p));
    END LOOP;
    WHILE cardinality(search) > 1 LOOP
        wider := '{}';
        FOR i IN 1 .. cardinality(search) BY 2 LOOP
            wider := wider || CASE WHEN i < cardinality(search)
                THEN format('IF p < %s THEN %s ELSE %s END IF;', i * covers, search[i], search[i + 1])
                ELSE search[i]
            END;
        END LOOP;
        search := wider;
        covers := 2 * covers;
    END LOOP;

    -- Appends a row.
    EXECUTE format($f$
        CREATE FUNCTION badged.append_row(p integer, key uuid, payload bytea, metadata json, events integer) RETURNS void
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
        CREATE FUNCTION badged.append_small(event jsonb, data jsonb) RETURNS bigint
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
        p := badged.partition_of(users ->> i, %1$s);
        named[p] := coalesce(named[p], '[]') || (users -> i);
    END LOOP;
    FOR i IN 0 .. coalesce(jsonb_array_length(mentions), 0) - 1 LOOP
        p := badged.partition_of(mentions ->> i, %1$s);
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
        %2$s
    END LOOP;
    RETURN pg_current_xact_id()::text::bigint;
END
$b$
    $f$, partitions, search[1]);
END
$$;
-- +goose StatementEnd

-- Appends a row with some of the events of a JSON array, which has these numbers,
-- from 1 on.
-- +goose StatementBegin
CREATE FUNCTION badged.append_slice(partition integer, events jsonb, numbers integer[], payloads text[]) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    event CONSTANT jsonb := events -> (numbers[1] - 1);
BEGIN
    IF cardinality(numbers) = 1 THEN
        PERFORM badged.append_row(partition, badged.event_key(event ->> 'source', event ->> 'id'), convert_to(payloads[1], 'UTF8'), badged.event_metadata(event), 1);
    ELSE
        -- Not a key, whose version is 8.
        PERFORM badged.append_row(partition, gen_random_uuid(), convert_to('[' || array_to_string(payloads, ',') || ']', 'UTF8'), NULL, cardinality(numbers));
    END IF;
END
$$;
-- +goose StatementEnd

-- Appends the events of a JSON array, which are valid: what a partition gets is one
-- row, or several if a row cannot hold it.
-- +goose StatementBegin
CREATE FUNCTION badged.append_events(events jsonb) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    -- The most events and bytes of a row with several events, as in the package
    -- eventbatch.
    most_events CONSTANT integer := 1000;
    most_bytes  CONSTANT integer := 1024 * 1024;
    partitions  CONSTANT integer := (SELECT s.partitions FROM badged.settings AS s);
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
                    ((get_byte(hash, 0)::bigint << 24) + (get_byte(hash, 1) << 16) + (get_byte(hash, 2) << 8) + get_byte(hash, 3)) % partitions AS p
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
                WHERE badged.partition_of(id, partitions) = p
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

-- Appends an event within the caller's transaction. It returns the position
-- that the HTTP API takes as at_least.
-- +goose StatementBegin
CREATE FUNCTION badged.publish(event jsonb) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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
    -- So it has few users.
    IF pg_column_size(data) <= 512 AND NOT starts_with(event ->> 'type', 'room.') THEN
        IF NOT event ? 'time' THEN
            event := event || badged.time_now();
        END IF;
        RETURN badged.append_small(event, data);
    END IF;
    RETURN badged.append_events(jsonb_build_array(event));
END
$$;
-- +goose StatementEnd

-- Appends the events of a JSON array, at most 10,000, all or none; no events
-- are fine and give position 0.
-- +goose StatementBegin
CREATE FUNCTION badged.publish_batch(events jsonb) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF jsonb_typeof(events) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'the batch must be a JSON array of events' USING ERRCODE = 'invalid_parameter_value';
    ELSIF jsonb_array_length(events) > 10000 THEN
        RAISE EXCEPTION 'the batch has more than 10000 events' USING ERRCODE = 'invalid_parameter_value';
    ELSIF events = '[]' THEN
        RETURN 0;
    END IF;
    IF (
        SELECT bool_and(badged.is_plain(e, data))
        FROM (SELECT e, e -> 'data' AS data FROM jsonb_array_elements(events) AS e OFFSET 0) AS x
    ) IS NOT TRUE THEN
        -- Members of objects only: an element of an array that is null stays, and is
        -- refused.
        events := jsonb_strip_nulls(events);
        PERFORM badged.check_events(events, true);
        events := (SELECT jsonb_agg(badged.normal_event(e) ORDER BY i) FROM jsonb_array_elements(events) WITH ORDINALITY AS x (e, i));
    END IF;
    RETURN badged.append_events(events);
END
$$;
-- +goose StatementEnd
