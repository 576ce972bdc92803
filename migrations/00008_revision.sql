-- The owner of a partition remembers rows that it has written.

-- +goose Up

-- Whoever changes rows beside the owner, behind the row of the position, raises
-- the revision, so that the owner reads them again.
ALTER TABLE badged.partitions ADD COLUMN revision bigint NOT NULL DEFAULT 0;

-- Fails where a statement has not written the rows that must be there.
-- +goose StatementBegin
CREATE FUNCTION badged.expect_rows(written bigint, expected bigint) RETURNS void
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF written <> expected THEN
        RAISE EXCEPTION '% of % rows are not there any more: something else than badged has deleted them',
            expected - written, expected USING ERRCODE = 'no_data_found';
    END IF;
END
$$;
-- +goose StatementEnd
