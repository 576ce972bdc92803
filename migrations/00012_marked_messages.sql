-- Messages that were marked unread.

-- +goose Up
SELECT badged.wait_for_batches();

-- Messages at or below read_seq that count again, encoded as the other sets. unread
-- counts them too. Null for an empty set, and for memberships.
ALTER TABLE badged.conversations ADD COLUMN again_set bytea;

-- Baselines, and what an archiving or a rebuild that was interrupted has left.
-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        name := badged.partition_table('conversations', p);
        EXECUTE format('ALTER TABLE badged.%I ADD COLUMN again_set bytea', name || '_baseline');
        EXECUTE format('ALTER TABLE IF EXISTS badged.%I ADD COLUMN again_set bytea', name || '_baseline_next');
        EXECUTE format('ALTER TABLE IF EXISTS badged.%I ADD COLUMN again_set bytea', name || '_staging');
    END LOOP;
END
$$;
-- +goose StatementEnd
