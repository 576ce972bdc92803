-- The rules by which publishing in SQL accepts an event: those of events.Decode,
-- with its limits.

-- +goose Up

-- An RFC 3339 time in UTC, to the nanosecond, without zeros at the end of its
-- fraction; null for what is no such time. The year can come out as 0000 or
-- 10000. The fraction is text throughout: a timestamp ends at microseconds.
-- +goose StatementBegin
CREATE FUNCTION badged.utc_time(given text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    -- As lenient as Go: a comma, an hour of one digit, a zone of up to 24:60.
    part text[] := regexp_match(given COLLATE "C",
        '^([0-9]{4})-(0[1-9]|1[0-2])-([0-9]{2})T([01]?[0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:[.,]([0-9]+))?'
        '(?:Z|([+-])([01][0-9]|2[0-4]):([0-5][0-9]|60))$');
    -- Postgres has no year 0: the year before 1 is -1.
    first    date := make_date(coalesce(nullif(part[1]::integer, 0), -1), part[2]::integer, 1);
    day      date := first + (part[3]::integer - 1);
    fraction text := rtrim(left(part[7], 9), '0');
    utc      timestamp;
BEGIN
    IF part IS NULL OR extract(month FROM day) <> extract(month FROM first) THEN
        RETURN NULL;
    END IF;
    utc := day + make_time(part[4]::integer, part[5]::integer, part[6]::integer);
    IF part[8] IS NOT NULL THEN
        utc := utc - make_interval(hours => (part[8] || part[9])::integer, mins => (part[8] || part[10])::integer);
    END IF;
    RETURN CASE WHEN utc < '0001-01-01' THEN '0000' ELSE to_char(utc, 'YYYY') END
        || to_char(utc, '-MM-DD"T"HH24:MI:SS')
        || CASE WHEN fraction <> '' THEN '.' || fraction ELSE '' END
        || 'Z';
END
$$;
-- +goose StatementEnd

-- Whether a text holds control characters: C0, DEL or C1.
CREATE FUNCTION badged.has_control(given text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN given COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]';

-- A text in JSON, empty for what is no text.
CREATE FUNCTION badged.text_of(value jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE jsonb_typeof(value) WHEN 'string' THEN value #>> '{}' ELSE '' END;

-- What is wrong with a text that may have so many bytes; null for nothing.
CREATE FUNCTION badged.text_problem(given text, most integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN given = '' THEN 'must not be empty'
        WHEN octet_length(given) > most THEN 'must have at most ' || most::text || ' bytes, has ' || octet_length(given)::text
        WHEN badged.has_control(given) THEN 'must not hold control characters'
    END;

-- What keeps an attribute from being read; null for nothing.
CREATE FUNCTION badged.attribute_problem(name text, value jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN name = 'data' THEN
            CASE WHEN jsonb_typeof(value) <> 'object' THEN 'must be a JSON object' END
        WHEN value = 'null' THEN
            NULL -- one that was not given
        WHEN name = 'data_base64' THEN
            'is not supported: give data as JSON'
        WHEN name NOT IN ('specversion', 'id', 'source', 'type', 'time', 'traceparent', 'tracestate',
            'datacontenttype', 'dataschema', 'subject') THEN
            'is not a known field'
        WHEN jsonb_typeof(value) <> 'string' THEN
            'must be a string'
        WHEN name = 'specversion' AND value <> '"1.0"' THEN
            'must be "1.0"'
        WHEN name = 'time' AND badged.utc_time(value #>> '{}') IS NULL THEN
            'must be an RFC 3339 time such as 2026-01-31T23:59:59Z'
        WHEN name = 'datacontenttype'
            AND (value #>> '{}') COLLATE "C" !~* '^\s*(application/json|[^;]*\+json)\s*(;|$)' THEN
            'must be application/json'
    END;

-- What keeps a field of data from being read; null for nothing.
CREATE FUNCTION badged.field_problem(name text, value jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN name IN ('conversation_id', 'category', 'message_id', 'sender_id', 'level') THEN
            CASE WHEN jsonb_typeof(value) <> 'string' THEN 'must be a string' END
        WHEN name IN ('user_ids', 'mentioned_user_ids') THEN
            CASE WHEN jsonb_typeof(value) <> 'array' THEN 'must be an array of strings' END
        WHEN name = 'by_app' THEN
            CASE WHEN jsonb_typeof(value) <> 'boolean' THEN 'must be true or false' END
        WHEN name NOT IN ('seq', 'up_to_seq') THEN
            'is not a known field'
        WHEN jsonb_typeof(value) <> 'number' THEN
            'must be a whole number'
        WHEN scale(value::numeric) > 0
            OR value::numeric NOT BETWEEN -9223372036854775808 AND 9223372036854775807 THEN
            'must be a whole number from 1 to 9223372036854775807'
    END;

-- Returns the fields that the data of an event of a type must have, and those that
-- it may have; null for an unknown type. A test compares them with package events.
-- Postgres does not inline expressions like these in functions that are strict.
CREATE FUNCTION badged.required_fields(type text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE type
        WHEN 'message.delivered' THEN '{conversation_id,user_ids,seq}'
        WHEN 'conversation.read' THEN '{conversation_id,user_ids,up_to_seq}'
        WHEN 'conversation.expired' THEN '{conversation_id,user_ids,up_to_seq}'
        WHEN 'message.recalled' THEN '{conversation_id,user_ids,seq}'
        WHEN 'conversation.marked_unread' THEN '{conversation_id,user_ids}'
        WHEN 'conversation.left' THEN '{conversation_id,user_ids}'
        WHEN 'conversation.level_set' THEN '{conversation_id,user_ids,level}'
        WHEN 'user.read_all' THEN '{user_ids}'
    END::text[];

CREATE FUNCTION badged.allowed_fields(type text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE type
        WHEN 'message.delivered' THEN '{conversation_id,user_ids,seq,mentioned_user_ids,category,message_id,sender_id}'
        WHEN 'conversation.read' THEN '{conversation_id,user_ids,up_to_seq,by_app}'
        WHEN 'conversation.expired' THEN '{conversation_id,user_ids,up_to_seq}'
        WHEN 'message.recalled' THEN '{conversation_id,user_ids,seq}'
        WHEN 'conversation.marked_unread' THEN '{conversation_id,user_ids}'
        WHEN 'conversation.left' THEN '{conversation_id,user_ids,up_to_seq}'
        WHEN 'conversation.level_set' THEN '{conversation_id,user_ids,level}'
        WHEN 'user.read_all' THEN '{user_ids,category}'
    END::text[];

-- Whether a value is absent or a text with so many bytes.
CREATE FUNCTION badged.is_text(value jsonb, most integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(jsonb_typeof(value) = 'string' AND octet_length(value #>> '{}') BETWEEN 1 AND most, true);

-- Whether a value is absent or a positive number of at most 18 digits.
CREATE FUNCTION badged.is_seq(value jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(jsonb_typeof(value) = 'number' AND (value #>> '{}') COLLATE "C" ~ '^[1-9][0-9]{0,17}$', true);

-- Whether an event is one of the valid events that nearly all publishers send. It
-- costs a tenth of event_problems, which decides about all others: it is false for
-- rare attributes, escapes in texts, and many mentions.
--
-- It consists of simple expressions, which plpgsql evaluates without starting an
-- executor. A part may be reached although an earlier one is false, so none fails.
-- +goose StatementBegin
CREATE FUNCTION badged.is_plain(event jsonb) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    type     text  := event ->> 'type';
    data     jsonb := event -> 'data';
    users    jsonb := data -> 'user_ids';
    mentions jsonb := data -> 'mentioned_user_ids';
    whole    text  := event::text;
    listed   text  := users::text;
    others   integer;
BEGIN
    IF type = 'conversation.expired' OR jsonb_typeof(event) <> 'object' OR jsonb_typeof(data) <> 'object'
        OR jsonb_typeof(users) <> 'array'
    THEN
        RETURN false;
    END IF;
    IF (
        event ?& '{id,source}' AND event @> '{"specversion": "1.0"}'
        AND event - '{specversion,id,source,type,time,traceparent,tracestate,data}'::text[] = '{}'
        AND data ?& badged.required_fields(type) AND data - badged.allowed_fields(type) = '{}'
        -- JSON escapes C0. DEL is ASCII, and C1 is not.
        AND strpos(whole, '\') = 0 AND strpos(whole, chr(127)) = 0
        AND (octet_length(whole) = length(whole) OR whole COLLATE "C" !~ '[\u0080-\u009f]')
        AND badged.is_text(event -> 'id', 256) AND badged.is_text(event -> 'source', 256)
        AND badged.is_text(event -> 'traceparent', 512) AND badged.is_text(event -> 'tracestate', 512)
        AND badged.is_text(data -> 'conversation_id', 128) AND badged.is_text(data -> 'category', 64)
        AND badged.is_text(data -> 'message_id', 128) AND badged.is_text(data -> 'sender_id', 128)
        AND badged.is_seq(data -> 'seq') AND badged.is_seq(data -> 'up_to_seq')
        AND coalesce(data -> 'level' IN ('"all"', '"mentions"', '"none"'), true)
        AND coalesce(jsonb_typeof(data -> 'by_app') = 'boolean', true)
        AND listed <> '[]' AND NOT users @? 'strict $[*] ? (@.type() != "string" || @ == "")'
    ) IS NOT TRUE THEN
        RETURN false;
    END IF;
    IF event ? 'time' AND (jsonb_typeof(event -> 'time') = 'string' AND badged.utc_time(event ->> 'time') !~ '^(0000|10000)') IS NOT TRUE THEN
        RETURN false;
    END IF;
    -- A list this short has no id that is too long, and at most 10,000 of them.
    IF octet_length(listed) > 128 THEN
        IF jsonb_array_length(users) > 10000 OR EXISTS (SELECT FROM jsonb_array_elements_text(users) AS u WHERE octet_length(u) > 128) THEN
            RETURN false;
        END IF;
    END IF;
    IF mentions IS NULL THEN
        RETURN true;
    ELSIF jsonb_typeof(mentions) <> 'array' THEN
        RETURN false;
    END IF;
    -- The containment compares each with each.
    others := jsonb_array_length(mentions);
    RETURN others <= 10 AND mentions <@ users;
END
$$;
-- +goose StatementEnd

-- What is wrong with an event: the fields that events.Decode finds at fault, in its
-- order. A field can come again: only its first time counts.
-- +goose StatementBegin
CREATE FUNCTION badged.event_problems(event jsonb) RETURNS TABLE (field text, message text)
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    type     text := event ->> 'type';
    data     jsonb := event -> 'data';
    users    jsonb := CASE jsonb_typeof(data -> 'user_ids') WHEN 'array' THEN data -> 'user_ids' END;
    mentions jsonb := CASE jsonb_typeof(data -> 'mentioned_user_ids') WHEN 'array' THEN data -> 'mentioned_user_ids' END;
    required text[] := badged.required_fields(type);
    allowed  text[] := badged.allowed_fields(type);
    name     text;
    value    jsonb;
BEGIN
    IF jsonb_typeof(event) <> 'object' THEN
        field := ''; message := 'must be a JSON object'; RETURN NEXT;
        RETURN;
    END IF;

    -- What cannot be read, in the order in which jsonb keeps names.
    FOR name, value IN SELECT * FROM jsonb_each(event) LOOP
        message := badged.attribute_problem(name, value);
        IF message IS NOT NULL THEN
            field := left(name, 128); RETURN NEXT;
        ELSIF name = 'data' THEN
            FOR name, value IN SELECT * FROM jsonb_each(data) LOOP
                message := badged.field_problem(name, value);
                IF message IS NOT NULL THEN
                    field := left('data.' || name, 128); RETURN NEXT;
                -- Strict, since lax takes a list in the list for its elements.
                ELSIF jsonb_path_exists(value, 'strict $[*] ? (@.type() != "string")', silent => true) THEN
                    RETURN QUERY
                    SELECT format('data.%s[%s]', name, i - 1), 'must be a string'
                    FROM jsonb_array_elements(value) WITH ORDINALITY AS x (element, i)
                    WHERE jsonb_typeof(element) <> 'string' AND i <= 10001;
                END IF;
            END LOOP;
        END IF;
    END LOOP;

    -- What is missing. An attribute that is null is one that was not given.
    message := 'is required';
    IF coalesce(event -> 'specversion', 'null') = 'null' THEN field := 'specversion'; RETURN NEXT; END IF;
    IF coalesce(event -> 'id', 'null') = 'null' THEN field := 'id'; RETURN NEXT; END IF;
    IF coalesce(event -> 'source', 'null') = 'null' THEN field := 'source'; RETURN NEXT; END IF;
    IF coalesce(event -> 'type', 'null') = 'null' THEN field := 'type'; RETURN NEXT; END IF;
    IF data IS NULL THEN field := 'data'; RETURN NEXT; END IF;

    -- What is out of bounds.
    message := badged.text_problem(event ->> 'id', 256);
    IF message IS NOT NULL THEN field := 'id'; RETURN NEXT; END IF;
    message := badged.text_problem(event ->> 'source', 256);
    IF message IS NOT NULL THEN field := 'source'; RETURN NEXT; END IF;
    message := badged.text_problem(nullif(event ->> 'traceparent', ''), 512);
    IF message IS NOT NULL THEN field := 'traceparent'; RETURN NEXT; END IF;
    message := badged.text_problem(nullif(event ->> 'tracestate', ''), 512);
    IF message IS NOT NULL THEN field := 'tracestate'; RETURN NEXT; END IF;
    IF badged.utc_time(event ->> 'time') ~ '^(0000|10000)' THEN
        field := 'time'; message := 'must lie in the years 1 to 9999'; RETURN NEXT;
    END IF;
    IF required IS NULL THEN
        field := 'type';
        message := CASE WHEN type <> '' THEN 'is not a type of event' ELSE 'is required' END;
        RETURN NEXT;
        RETURN;
    END IF;
    IF jsonb_typeof(data) IS DISTINCT FROM 'object' THEN
        RETURN; -- its fields go without saying
    END IF;

    IF NOT data ?& required OR data - allowed <> '{}' THEN
        RETURN QUERY
        SELECT 'data.' || known, CASE WHEN data ? known THEN 'is not a field of ' || type ELSE 'is required' END
        FROM unnest(
            '{conversation_id,user_ids,seq,up_to_seq,mentioned_user_ids,category,message_id,sender_id,level,by_app}'::text[]
        ) AS known
        WHERE CASE WHEN data ? known THEN known <> ALL (allowed) ELSE known = ANY (required) END;
    END IF;
    message := badged.text_problem(data ->> 'conversation_id', 128);
    IF message IS NOT NULL THEN field := 'data.conversation_id'; RETURN NEXT; END IF;
    IF users = '[]' THEN
        field := 'data.user_ids'; message := 'must name at least one user'; RETURN NEXT;
    ELSIF jsonb_array_length(users) > 10000 THEN
        field := 'data.user_ids';
        message := format('must name at most 10000 users, names %s', jsonb_array_length(users));
        RETURN NEXT;
    ELSE
        RETURN QUERY
        SELECT format('data.user_ids[%s]', i - 1), badged.text_problem(u, 128)
        FROM jsonb_array_elements_text(users) WITH ORDINALITY AS x (u, i)
        WHERE badged.text_problem(u, 128) IS NOT NULL;
    END IF;
    IF data -> 'seq' < '1' THEN
        field := 'data.seq'; message := 'must be at least 1, is ' || (data ->> 'seq'); RETURN NEXT;
    END IF;
    IF data -> 'up_to_seq' < '1' THEN
        field := 'data.up_to_seq'; message := 'must be at least 1, is ' || (data ->> 'up_to_seq'); RETURN NEXT;
    END IF;
    IF jsonb_array_length(mentions) > 10000 THEN
        field := 'data.mentioned_user_ids';
        message := format('must name at most 10000 users, names %s', jsonb_array_length(mentions));
        RETURN NEXT;
    ELSIF mentions <> '[]' AND 'mentioned_user_ids' = ANY (allowed) THEN
        RETURN QUERY
        SELECT format('data.mentioned_user_ids[%s]', i - 1),
            'is not among data.user_ids'
        FROM jsonb_array_elements(mentions) WITH ORDINALITY AS x (mentioned, i)
        WHERE badged.text_of(mentioned) NOT IN (SELECT badged.text_of(u) FROM jsonb_array_elements(users) AS u);
    END IF;
    message := badged.text_problem(data ->> 'category', 64);
    IF message IS NOT NULL THEN field := 'data.category'; RETURN NEXT; END IF;
    message := badged.text_problem(data ->> 'message_id', 128);
    IF message IS NOT NULL THEN field := 'data.message_id'; RETURN NEXT; END IF;
    message := badged.text_problem(data ->> 'sender_id', 128);
    IF message IS NOT NULL THEN field := 'data.sender_id'; RETURN NEXT; END IF;
    IF data ->> 'level' NOT IN ('all', 'mentions', 'none') THEN
        field := 'data.level';
        message := 'must be "all", "mentions" or "none"';
        RETURN NEXT;
    END IF;
END
$$;
-- +goose StatementEnd

-- Raises an error that names every bad event of a JSON array; where there is
-- none it does nothing.
-- +goose StatementBegin
CREATE FUNCTION badged.check_events(events jsonb, is_batch boolean) RETURNS void
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    bad record;
BEGIN
    -- What is said of the bad would take longer than what is done for the good.
    IF NOT EXISTS (SELECT FROM jsonb_array_elements(events) AS event, badged.event_problems(event))
        AND NOT events @> '[{"type": "conversation.expired"}]'
    THEN
        RETURN;
    END IF;

    WITH event AS (
        SELECT i, e
        FROM jsonb_array_elements(events) WITH ORDINALITY AS x (e, i)
    ),
    problem AS (
        SELECT DISTINCT ON (i, field) i, n, field, message
        FROM event, badged.event_problems(e) WITH ORDINALITY AS x (field, message, n)
        ORDER BY i, field, n
    ),
    refused AS (
        SELECT i, n, field, message
        FROM problem
        UNION ALL
        SELECT i, 1, 'type', 'is written by badged itself only'
        FROM event
        WHERE e ->> 'type' = 'conversation.expired' AND i NOT IN (SELECT i FROM problem)
    ),
    counted AS (
        SELECT *, dense_rank() OVER (ORDER BY i) AS nth_event, row_number() OVER (PARTITION BY i ORDER BY n) AS nth_field
        FROM refused
    )
    SELECT max(nth_event) AS events,
        min(i) - 1 AS first,
        string_agg(CASE WHEN field <> '' THEN field || ': ' ELSE '' END || message, '; ' ORDER BY n)
            FILTER (WHERE nth_event = 1) AS message,
        json_agg(json_strip_nulls(json_build_object('index', i - 1, 'field', nullif(field, ''), 'message', message)) ORDER BY i, n)
            FILTER (WHERE nth_event <= 100) AS detail
    INTO bad
    FROM counted
    WHERE nth_field <= 20;

    RAISE EXCEPTION USING
        ERRCODE = 'invalid_parameter_value',
        MESSAGE = CASE WHEN bad.events > 1 THEN format('%s events are invalid; ', bad.events) ELSE '' END
            || CASE WHEN is_batch THEN format('event %s: ', bad.first) ELSE '' END
            || 'invalid event: ' || bad.message,
        DETAIL = bad.detail;
END
$$;
-- +goose StatementEnd
