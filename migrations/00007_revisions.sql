-- The revision of a partition beside its position: the statement that moves the
-- position compares both.

-- +goose Up
SELECT badged.wait_for_batches();

-- Grows with every change of the row in badged.partitions: a new epoch, or rows of
-- users or conversations that another program than the projector has written.
-- +goose StatementBegin
DO $$
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        EXECUTE format('ALTER TABLE badged.%I ADD COLUMN revision bigint NOT NULL DEFAULT 0', badged.log_table(p) || '_offsets');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION badged.revise_position() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''',
        badged.log_table(NEW.partition_id) || '_offsets');
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION badged.revise_position() FROM PUBLIC;

CREATE TRIGGER revise_position AFTER UPDATE ON badged.partitions
    FOR EACH ROW EXECUTE FUNCTION badged.revise_position();
