-- Where the log is at home. Its order is that of transaction ids, which mean
-- something only where they were given out: a dump that is restored elsewhere
-- brings ids that the new cluster has not reached yet.
--
-- The row names the transaction that wrote it, and its table. Whatever copies
-- the files of a cluster keeps both true (physical backups, standbys,
-- pg_upgrade, CREATE DATABASE … TEMPLATE); whatever copies rows does not, since
-- it writes them by other transactions and into another table. No privilege is
-- needed to look, unlike for the cluster's system identifier, which pg_upgrade
-- changes besides.

-- +goose Up
CREATE TABLE badged.log_origin (
    singleton      boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- The row's own xmin, or 0 while the log has to be repaired.
    transaction_id xid8 NOT NULL,
    table_id       oid  NOT NULL
);

-- +goose StatementBegin
DO $$
DECLARE
    topic text;
    ahead boolean;
    home  boolean := true;
BEGIN
    FOR topic IN
        SELECT 'events_p' || lpad(p::text, greatest(2, length(p::text)), '0')
        FROM badged.settings, generate_series(0, partitions - 1) AS p
    LOOP
        -- A log that is ahead of this cluster was restored before it had this
        -- table.
        EXECUTE format($f$
            SELECT EXISTS (SELECT FROM badged.%I WHERE transaction_id > pg_current_xact_id())
                OR EXISTS (SELECT FROM badged.%I WHERE last_processed_transaction_id > pg_current_xact_id())
            $f$, topic, topic || '_offsets')
        INTO ahead;
        home := home AND NOT ahead;
    END LOOP;

    INSERT INTO badged.log_origin (transaction_id, table_id)
    VALUES (CASE WHEN home THEN pg_current_xact_id() ELSE '0' END, 'badged.log_origin'::regclass);
END
$$;
-- +goose StatementEnd
