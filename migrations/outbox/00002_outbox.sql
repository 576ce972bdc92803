-- The outbox: publishing in plain SQL in a database that has no log. The functions have the names
-- of those in a database with a log, and accept and refuse the same events. They store the events
-- until `badged relay` has carried them to badged.

-- +goose Up
-- +goose StatementBegin
-- The order of events is the order of "offset": if a transaction publishes after it could see the
-- commit of another transaction, its offsets are greater. Rows are deleted soon after they are
-- inserted, so the table is vacuumed often.
CREATE TABLE badged.outbox (
    "offset"       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The transaction that published the event.
    transaction_id xid8        NOT NULL,
    published_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload        text        NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 10000, toast.autovacuum_vacuum_cost_delay = 0);
-- For the rows of transactions that committed late.
CREATE INDEX outbox_transactions ON badged.outbox (transaction_id);

-- Events that badged has refused. A row stays until an operator retries or deletes it.
CREATE TABLE badged.outbox_refused (
    "offset"     bigint      PRIMARY KEY,
    published_at timestamptz NOT NULL,
    refused_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason       text        NOT NULL,
    payload      text        NOT NULL
);

-- Stores an event. It returns 0: the event has no position in the log yet.
CREATE FUNCTION badged.publish(event jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    data        jsonb := event -> 'data';
    -- Assigned before the row gets its offset: the relay relies on this order.
    transaction CONSTANT xid8 := pg_current_xact_id();
BEGIN
    IF badged.is_plain(event, data) IS NOT TRUE THEN
        event := jsonb_strip_nulls(event);
        PERFORM badged.check_events(jsonb_build_array(event), false);
        event := badged.normal_event(event);
    END IF;
    IF NOT event ? 'time' THEN
        event := event || badged.time_now();
    END IF;
    INSERT INTO badged.outbox (transaction_id, payload) VALUES (transaction, event::text);
    RETURN 0;
END
$$;

-- Stores the events of a JSON array, at most 10,000, in their order.
CREATE FUNCTION badged.publish_batch(events jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    transaction CONSTANT xid8 := pg_current_xact_id();
    now         CONSTANT jsonb := badged.time_now();
BEGIN
    INSERT INTO badged.outbox (transaction_id, payload)
    SELECT transaction, (CASE WHEN e ? 'time' THEN e ELSE e || now END)::text
    FROM jsonb_array_elements(badged.accept_batch(events)) WITH ORDINALITY AS x (e, i)
    ORDER BY i;
    RETURN 0;
END
$$;

-- Publishers are granted the two functions above, which run with the rights of their owner.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA badged FROM PUBLIC;
-- +goose StatementEnd
