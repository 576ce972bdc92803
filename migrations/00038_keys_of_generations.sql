-- An event that comes again for other users, in a later generation of event keys, is in the
-- baseline twice: each of its users is forgotten with the generation in which it came.

-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
    keys text;
BEGIN
    FOR keys IN SELECT badged.partition_table('keys', p) || '_baseline' FROM badged.existing_partitions() AS p LOOP
        EXECUTE format('ALTER TABLE badged.%1$I DROP CONSTRAINT %2$I, ADD CONSTRAINT %2$I PRIMARY KEY (key, generation)', keys, keys || '_pkey');
    END LOOP;
END
$$;
-- +goose StatementEnd
