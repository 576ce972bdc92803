-- Publishing in SQL treats a field of data that is null as absent, as it does an
-- attribute, and as publishing in Go and over HTTP does.

-- +goose Up

-- Appends an event within the caller's transaction. It returns the position
-- that the HTTP API takes as at_least.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.publish(event jsonb) RETURNS bigint
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    events CONSTANT jsonb := jsonb_strip_nulls(jsonb_build_array(event));
BEGIN
    PERFORM badged.check_events(events, false);
    RETURN badged.append_events(events);
END
$$;
-- +goose StatementEnd

-- Appends the events of a JSON array, at most 10,000, all or none; no events
-- are fine and give position 0.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.publish_batch(events jsonb) RETURNS bigint
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
    -- Members of objects only: an element of an array that is null stays, and is
    -- refused.
    events := jsonb_strip_nulls(events);
    PERFORM badged.check_events(events, true);
    RETURN badged.append_events(events);
END
$$;
-- +goose StatementEnd
