-- Publishing in SQL learns two fields: by_app, which marks a read as an app's, and
-- up_to_seq of conversation.left. Everything else is as before.

-- +goose Up

-- What keeps a field of data from being read; null for nothing.
CREATE OR REPLACE FUNCTION badged.field_problem(name text, value jsonb) RETURNS text
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
            'must be a whole number from 1 to 9223372036854775807, is ' || badged.quoted(value::text)
    END;

-- What is wrong with an event, in the words and the order of events.Decode on
-- the text of the jsonb. A field can come again: only its first time counts.
--
-- It goes step by step because plpgsql evaluates a simple expression many times
-- faster than it runs a query.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.event_problems(event jsonb) RETURNS TABLE (field text, message text)
    LANGUAGE plpgsql STABLE
AS $$
DECLARE
    type     text := event ->> 'type';
    data     jsonb := event -> 'data';
    users    jsonb := CASE jsonb_typeof(data -> 'user_ids') WHEN 'array' THEN data -> 'user_ids' END;
    mentions jsonb := CASE jsonb_typeof(data -> 'mentioned_user_ids') WHEN 'array' THEN data -> 'mentioned_user_ids' END;
    required text[] := CASE type
        WHEN 'message.delivered' THEN '{conversation_id,user_ids,seq}'
        WHEN 'conversation.read' THEN '{conversation_id,user_ids,up_to_seq}'
        WHEN 'conversation.expired' THEN '{conversation_id,user_ids,up_to_seq}'
        WHEN 'message.recalled' THEN '{conversation_id,user_ids,seq}'
        WHEN 'conversation.marked_unread' THEN '{conversation_id,user_ids}'
        WHEN 'conversation.left' THEN '{conversation_id,user_ids}'
        WHEN 'conversation.level_set' THEN '{conversation_id,user_ids,level}'
        WHEN 'user.read_all' THEN '{user_ids}'
    END;
    allowed  text[] := required || CASE type
        WHEN 'message.delivered' THEN '{mentioned_user_ids,category,message_id,sender_id}'::text[]
        WHEN 'conversation.read' THEN '{by_app}'
        WHEN 'conversation.left' THEN '{up_to_seq}'
        WHEN 'user.read_all' THEN '{category}'
    END;
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
            field := badged.shown_path(name); RETURN NEXT;
        ELSIF name = 'data' THEN
            FOR name, value IN SELECT * FROM jsonb_each(data) LOOP
                message := badged.field_problem(name, value);
                IF message IS NOT NULL THEN
                    field := badged.shown_path('data.' || name); RETURN NEXT;
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
        message := CASE WHEN type <> '' THEN badged.quoted(type) || ' is not a type of event' ELSE 'is required' END;
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
            badged.quoted(badged.text_of(mentioned)) || ' is not among data.user_ids'
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
        message := 'must be "all", "mentions" or "none", is ' || badged.quoted(data ->> 'level');
        RETURN NEXT;
    END IF;
END
$$;
-- +goose StatementEnd

-- Appends the events of a JSON array, which are good, and returns the id of the
-- transaction. Each is one row in every partition that holds some of its users,
-- with just those users.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.append_events(events jsonb) RETURNS bigint
    LANGUAGE plpgsql
AS $$
DECLARE
    partitions CONSTANT integer := (SELECT s.partitions FROM badged.settings AS s);
    now        CONSTANT text := badged.utc_time(to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
    share      record;
BEGIN
    FOR share IN
        WITH event AS (
            SELECT i, e, e -> 'data' AS data,
                badged.event_key(e ->> 'source', e ->> 'id') AS key,
                coalesce(nullif(badged.utc_time(e ->> 'time'), '0001-01-01T00:00:00Z'), now) AS time,
                -- Empty is as good as none.
                '"traceparent":' || to_json(nullif(e ->> 'traceparent', '')) AS traceparent,
                '"tracestate":' || to_json(nullif(e ->> 'tracestate', '')) AS tracestate
            FROM jsonb_array_elements(events) WITH ORDINALITY AS x (e, i)
        ),
        receiver AS (
            SELECT i, p, string_agg(u::text, ',' ORDER BY n) AS users
            FROM event,
                jsonb_array_elements(data -> 'user_ids') WITH ORDINALITY AS x (u, n),
                badged.partition_of(u #>> '{}', partitions) AS p
            GROUP BY i, p
        ),
        mention AS (
            SELECT i, p, string_agg(u::text, ',' ORDER BY n) AS users
            FROM event,
                jsonb_array_elements(data -> 'mentioned_user_ids') WITH ORDINALITY AS x (u, n),
                badged.partition_of(u #>> '{}', partitions) AS p
            GROUP BY i, p
        ),
        -- Spelled out, for the order of names and without space between them.
        message AS (
            SELECT i, p, key,
                '{' || concat_ws(',',
                    '"specversion":"1.0"',
                    '"id":' || (e -> 'id')::text,
                    '"source":' || (e -> 'source')::text,
                    '"type":' || (e -> 'type')::text,
                    '"time":"' || time || '"',
                    traceparent,
                    tracestate,
                    '"data":{' || concat_ws(',',
                        '"conversation_id":' || (data -> 'conversation_id')::text,
                        '"user_ids":[' || receiver.users || ']',
                        '"seq":' || (data -> 'seq')::text,
                        '"up_to_seq":' || (data -> 'up_to_seq')::text,
                        '"mentioned_user_ids":[' || mention.users || ']',
                        '"category":' || (data -> 'category')::text,
                        '"message_id":' || (data -> 'message_id')::text,
                        '"sender_id":' || (data -> 'sender_id')::text,
                        '"level":' || (data -> 'level')::text,
                        -- False is as good as none.
                        '"by_app":' || nullif(data -> 'by_app', 'false')::text
                    ) || '}'
                ) || '}' AS payload,
                CASE WHEN traceparent IS NOT NULL THEN '{' || concat_ws(',', traceparent, tracestate) || '}' END AS metadata
            FROM event
            JOIN receiver USING (i)
            LEFT JOIN mention USING (i, p)
        )
        SELECT p,
            array_agg(key ORDER BY i) AS keys,
            array_agg(payload ORDER BY i) AS payloads,
            array_agg(metadata ORDER BY i) AS metadata
        FROM message
        GROUP BY p
        ORDER BY p
    LOOP
        EXECUTE format(
            'INSERT INTO badged.%I (uuid, payload, metadata, transaction_id)
             SELECT uuid, payload::json, metadata::json, pg_current_xact_id()
             FROM unnest($1, $2, $3) AS x (uuid, payload, metadata)',
            'events_p' || lpad(share.p::text, greatest(2, length(share.p::text)), '0'))
        USING share.keys, share.payloads, share.metadata;
    END LOOP;
    RETURN pg_current_xact_id()::text::bigint;
END
$$;
-- +goose StatementEnd
