-- Publishing in plain SQL: badged.publish and badged.publish_batch append
-- events within the caller's own transaction, from any language.
--
-- They write the rows that events.Log writes. A role that publishes needs no more
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
-- gives the same bytes.
-- +goose StatementBegin
CREATE FUNCTION badged.event_key(source text, id text) RETURNS uuid
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    namespace CONSTANT bytea := '\x6c1d7a345b0f5d5e9f0c0c5f1b7b9ad1';
    hash bytea := substr(sha256(namespace || convert_to(source, 'UTF8') || '\x00' || convert_to(id, 'UTF8')), 1, 16);
BEGIN
    hash := set_byte(hash, 6, get_byte(hash, 6) & 15 | 128); -- the version
    hash := set_byte(hash, 8, get_byte(hash, 8) & 63 | 128); -- the variant
    RETURN encode(hash, 'hex')::uuid;
END
$$;
-- +goose StatementEnd

-- Two functions with an INSERT for each partition: plpgsql keeps the plans of static
-- statements, while EXECUTE plans anew each time. Rows go to the table of the whole
-- log, whose last range changes.
-- +goose StatementBegin
DO $$
DECLARE
    for_one  text := '';
    for_many text := '';
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        for_one := for_one || format($f$
    %s partition = %s THEN
        INSERT INTO badged.%I (uuid, payload, metadata) VALUES (key, payload, metadata);$f$,
            CASE p WHEN 0 THEN 'IF' ELSE 'ELSIF' END, p, badged.log_table(p));
        for_many := for_many || format($f$
    %s partition = %s THEN
        INSERT INTO badged.%I (uuid, payload, metadata)
        SELECT x.key, convert_to(x.payload, 'UTF8'), x.metadata::json FROM unnest(keys, payloads, metadata) AS x (key, payload, metadata);$f$,
            CASE p WHEN 0 THEN 'IF' ELSE 'ELSIF' END, p, badged.log_table(p));
    END LOOP;
    EXECUTE format($f$
        CREATE FUNCTION badged.append_row(partition integer, key uuid, payload bytea, metadata json) RETURNS void
            LANGUAGE plpgsql
        AS $b$
#variable_conflict use_variable
BEGIN%s
    END IF;
END
$b$
    $f$, for_one);
    EXECUTE format($f$
        CREATE FUNCTION badged.append_rows(partition integer, keys uuid[], payloads text[], metadata text[]) RETURNS void
            LANGUAGE plpgsql
        AS $b$
#variable_conflict use_variable
BEGIN%s
    END IF;
END
$b$
    $f$, for_many);
END
$$;
-- +goose StatementEnd

-- Returns an event as Go encodes it, with the time and the users given: spelled out,
-- for the order of names and without space between them.
CREATE FUNCTION badged.event_json(event jsonb, at text, users text, mentions text) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN '{' || concat_ws(',',
        '"specversion":"1.0"',
        '"id":' || (event -> 'id')::text,
        '"source":' || (event -> 'source')::text,
        '"type":' || (event -> 'type')::text,
        '"time":"' || at || '"',
        -- Empty is as good as none.
        '"traceparent":' || nullif((event -> 'traceparent')::text, '""'),
        '"tracestate":' || nullif((event -> 'tracestate')::text, '""'),
        '"data":{' || badged.data_json(event -> 'data', users, mentions) || '}'
    ) || '}';

-- Returns the metadata of an event: its trace context, null without one.
CREATE FUNCTION badged.event_metadata(event jsonb) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN event ->> 'traceparent' <> '' THEN
        '{' || concat_ws(',',
            '"traceparent":' || (event -> 'traceparent')::text,
            '"tracestate":' || nullif((event -> 'tracestate')::text, '""')
        ) || '}'
    END;

-- Returns the time of an event as Go encodes it. Go's zero time means now.
CREATE FUNCTION badged.event_time(event jsonb) RETURNS text
    LANGUAGE sql VOLATILE
    RETURN coalesce(
        nullif(badged.utc_time(event ->> 'time'), '0001-01-01T00:00:00Z'),
        rtrim(rtrim(to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z'
    );

-- Appends a valid event that names few users: a row in every partition that holds
-- some of them, with just those. A loop costs less than starting a query.
-- +goose StatementBegin
CREATE FUNCTION badged.append_small(event jsonb) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    partitions CONSTANT integer := (SELECT s.partitions FROM badged.settings AS s);
    users      CONSTANT jsonb   := event -> 'data' -> 'user_ids';
    mentions   CONSTANT jsonb   := event -> 'data' -> 'mentioned_user_ids';
    at         CONSTANT text    := badged.event_time(event);
    key        CONSTANT uuid    := badged.event_key(event ->> 'source', event ->> 'id');
    touched    integer[] := '{}';
    -- By partition, from 1 on.
    named      text[];
    mentioned  text[];
    p          integer;
BEGIN
    FOR i IN 0 .. jsonb_array_length(users) - 1 LOOP
        p := badged.partition_of(users ->> i, partitions) + 1;
        IF named[p] IS NULL THEN
            touched := touched || p;
            named[p] := users -> i;
        ELSE
            named[p] := named[p] || ',' || (users -> i)::text;
        END IF;
    END LOOP;
    FOR i IN 0 .. coalesce(jsonb_array_length(mentions), 0) - 1 LOOP
        p := badged.partition_of(mentions ->> i, partitions) + 1;
        mentioned[p] := concat_ws(',', mentioned[p], (mentions -> i)::text);
    END LOOP;
    IF cardinality(touched) > 1 THEN
        touched := ARRAY(SELECT t FROM unnest(touched) AS t ORDER BY t);
    END IF;
    FOREACH p IN ARRAY touched LOOP
        PERFORM badged.append_row(p - 1, key, convert_to(badged.event_json(event, at, named[p], mentioned[p]), 'UTF8'), badged.event_metadata(event)::json);
    END LOOP;
    RETURN pg_current_xact_id()::text::bigint;
END
$$;
-- +goose StatementEnd

-- Appends the events of a JSON array, which are valid: each is one row in every
-- partition that holds some of its users, with just those.
-- +goose StatementBegin
CREATE FUNCTION badged.append_events(events jsonb) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    partitions CONSTANT integer := (SELECT s.partitions FROM badged.settings AS s);
    share      record;
BEGIN
    FOR share IN
        WITH event AS MATERIALIZED (
            SELECT i, e, badged.event_key(e ->> 'source', e ->> 'id') AS key, badged.event_time(e) AS at
            FROM jsonb_array_elements(events) WITH ORDINALITY AS x (e, i)
        )
        SELECT receiver.p,
            array_agg(key ORDER BY i) AS keys,
            array_agg(badged.event_json(e, at, receiver.users, receiver.mentions) ORDER BY i) AS payloads,
            array_agg(badged.event_metadata(e) ORDER BY i) AS metadata
        FROM event
        CROSS JOIN LATERAL (
            SELECT p,
                string_agg(u::text, ',') FILTER (WHERE NOT mentioned) AS users,
                string_agg(u::text, ',') FILTER (WHERE mentioned) AS mentions
            FROM (
                -- Sorted once here, rather than for each aggregate.
                SELECT badged.partition_of(u #>> '{}', partitions) AS p, u, mentioned
                FROM (
                    SELECT u, n, false
                    FROM jsonb_array_elements(e -> 'data' -> 'user_ids') WITH ORDINALITY AS x (u, n)
                    UNION ALL
                    SELECT u, n, true
                    FROM jsonb_array_elements(e -> 'data' -> 'mentioned_user_ids') WITH ORDINALITY AS x (u, n)
                ) AS named (u, n, mentioned)
                ORDER BY p, n
            ) AS sorted
            GROUP BY p
        ) AS receiver
        GROUP BY receiver.p
        ORDER BY receiver.p
    LOOP
        PERFORM badged.append_rows(share.p, share.keys, share.payloads, share.metadata);
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
BEGIN
    IF badged.is_plain(event) IS NOT TRUE THEN
        event := jsonb_strip_nulls(event);
        PERFORM badged.check_events(jsonb_build_array(event), false);
    END IF;
    IF jsonb_array_length(event -> 'data' -> 'user_ids') <= 20 AND coalesce(jsonb_array_length(event -> 'data' -> 'mentioned_user_ids'), 0) <= 20 THEN
        RETURN badged.append_small(event);
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
    IF (SELECT bool_and(badged.is_plain(e)) FROM jsonb_array_elements(events) AS e) IS NOT TRUE THEN
        -- Members of objects only: an element of an array that is null stays, and is
        -- refused.
        events := jsonb_strip_nulls(events);
        PERFORM badged.check_events(events, true);
    END IF;
    RETURN badged.append_events(events);
END
$$;
-- +goose StatementEnd
