-- When events were folded, if that was more than a second after they were
-- appended; and events are appended when the statement runs, not when its
-- transaction began.

-- +goose Up

-- Of each partition, in the order of the log: each row ends a run of events, which
-- were folded at a time or, if that is null, within a second. Events behind the
-- last row were in time.
CREATE TABLE badged.late_folds (
    partition_id   smallint    NOT NULL,
    number         bigint      NOT NULL,
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    -- When the run was begun: batches within a second are one run.
    since          timestamptz NOT NULL DEFAULT clock_timestamp(),
    folded_at      timestamptz,
    PRIMARY KEY (partition_id, number)
);

-- +goose StatementBegin
DO $$
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        EXECUTE format('ALTER TABLE badged.%I ALTER COLUMN created_at SET DEFAULT clock_timestamp()', badged.log_table(p));
    END LOOP;
END
$$;
-- +goose StatementEnd
