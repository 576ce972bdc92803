-- Which events were appended in this database, and which were copied into it;
-- and what a role that only publishes can write to the log.
--
-- A dump or logical replication copies rows, and with them the era of each
-- event: the name of the database that appended it. The name itself is not
-- copied, because it is a generated column: every copy of the row gets a new
-- one. Copies of files keep it, and the transaction ids with it: physical
-- backups, standbys, pg_upgrade, CREATE DATABASE … TEMPLATE.

-- +goose NO TRANSACTION
-- +goose Up

-- Each statement can be repeated, since they are not one transaction.

-- Returns a name that no other database has: milliseconds since 1970, then 20
-- random bits. Later names are greater, by the clocks of the servers. It is
-- declared immutable, which it is not, for generated columns to take it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.new_era(singleton boolean) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint << 20 | floor(random() * 1048576)::bigint;
END
$$;
-- +goose StatementEnd

-- The era of this database. The row is never updated.
CREATE TABLE IF NOT EXISTS badged.log_home (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    era       bigint  NOT NULL GENERATED ALWAYS AS (badged.new_era(singleton)) STORED
);
INSERT INTO badged.log_home DEFAULT VALUES ON CONFLICT DO NOTHING;

-- Returns the era of this database. It is the default of every event that is
-- appended. It is immutable as long as the database exists, so Postgres calls it
-- once for each plan.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.log_era() RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    era bigint := (SELECT h.era FROM badged.log_home AS h);
BEGIN
    IF era IS NULL THEN
        RAISE EXCEPTION 'badged.log_home has no row: the database was restored in part'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run badged repair-log.';
    END IF;
    RETURN era;
END
$$;
-- +goose StatementEnd

-- The era of the database in which the log was put in order last. Where it is
-- not this one, the log was copied here, and has to be repaired.
ALTER TABLE badged.settings ADD COLUMN IF NOT EXISTS settled_era bigint;

-- One transaction a table, and it waits 100 ms at a time, since publishers wait
-- behind it. The events that are there are of this era where the log is at home,
-- and of none (0) where it is not.
-- +goose StatementBegin
DO $$
DECLARE
    p      integer;
    topic  text;
    here   bigint := (SELECT CASE WHEN EXISTS (
        SELECT FROM badged.log_origin AS o
        WHERE o.tableoid = o.table_id AND o.xmin::text::bigint = (o.transaction_id::text::bigint & 4294967295)
    ) THEN badged.log_era() ELSE 0 END);
    locked boolean;
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        topic := badged.log_table(p);
        CONTINUE WHEN EXISTS (SELECT FROM pg_attribute
            WHERE attrelid = to_regclass(format('badged.%I', topic)) AND attname = 'era');
        LOOP
            PERFORM set_config('lock_timeout', '100ms', true);
            BEGIN
                EXECUTE format('LOCK TABLE badged.%I, badged.%I IN ACCESS EXCLUSIVE MODE', topic, topic || '_offsets');
                locked := true;
            EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
                locked := false;
            END;
            EXIT WHEN locked;
            COMMIT;
            PERFORM pg_sleep(0.05);
        END LOOP;
        -- With constant defaults, which rewrite no row.
        EXECUTE format($f$
            ALTER TABLE badged.%I
                ADD COLUMN era bigint NOT NULL DEFAULT %s,
                ADD COLUMN own boolean NOT NULL DEFAULT true$f$, topic, here);
        -- The largest valid event has 20,000 ids of 128 bytes, which JSON may
        -- escape by as many. A policy, which does not hold for the owner, since
        -- a constraint costs each statement a tenth of what it takes.
        EXECUTE format($f$
            CREATE POLICY event_size ON badged.%I USING (true)
                WITH CHECK (coalesce(pg_column_size(payload), 0) <= 8388608 AND coalesce(pg_column_size(metadata), 0) <= 65536)$f$, topic);
        EXECUTE format('ALTER TABLE badged.%I ENABLE ROW LEVEL SECURITY', topic);
        -- The columns that publishers have no right to.
        EXECUTE format($f$
            ALTER TABLE badged.%I
                ALTER COLUMN transaction_id SET DEFAULT pg_current_xact_id(),
                -- The database that appended the event.
                ALTER COLUMN era SET DEFAULT badged.log_era(),
                -- Whether badged wrote it by itself.
                ALTER COLUMN own SET DEFAULT false$f$, topic);
        EXECUTE format('ALTER TABLE badged.%I ADD COLUMN era bigint NOT NULL DEFAULT %s', topic || '_offsets', here);
        EXECUTE format('ALTER TABLE badged.%I ALTER COLUMN era SET DEFAULT badged.log_era()', topic || '_offsets');
        COMMIT;
    END LOOP;
    UPDATE badged.settings SET settled_era = here WHERE settled_era IS NULL;
END
$$;
-- +goose StatementEnd

-- Returns whether the log, or a part of it, was copied here and has not been put
-- in order. Where only some tables were copied, it goes by the positions of
-- consumers and by the last event of each partition. A position of the projector
-- that no event can reach is one of a copy too.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.log_needs_repair() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    home    bigint  := (SELECT era FROM badged.log_home);
    needed  boolean := home IS NULL OR home IS DISTINCT FROM (SELECT settled_era FROM badged.settings);
    topic   text;
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        EXIT WHEN needed;
        topic := badged.log_table(p);
        EXECUTE format($f$
            SELECT EXISTS (SELECT FROM badged.%I
                           WHERE era <> $1 OR consumer_group = 'projector' AND last_processed_transaction_id > pg_snapshot_xmax(pg_current_snapshot())::text::xid8)
                OR EXISTS (SELECT FROM (SELECT era, transaction_id FROM badged.%I ORDER BY transaction_id DESC, "offset" DESC LIMIT 1) AS last
                           WHERE era <> $1 AND transaction_id > '3')$f$, topic || '_offsets', topic)
        INTO needed USING home;
    END LOOP;
    RETURN needed;
END
$$;
-- +goose StatementEnd

-- Puts aside as dead letters what was written to the log of a partition with a
-- transaction id that this cluster has not given out, which only the owner of
-- the schema can do: it could not be read for long, and no range of the log
-- could end before it. Returns how many there were.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.bury_unissued(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    buried integer;
BEGIN
    EXECUTE format($f$
        WITH unissued AS (
            DELETE FROM badged.%I
            WHERE transaction_id >= $2 AND era = $3
            RETURNING transaction_id, "offset", uuid, payload
        )
        INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason)
        SELECT $1, transaction_id, "offset", uuid, payload, 'it had the transaction id ' || transaction_id::text || ', which was not given out yet'
        FROM unissued$f$, badged.log_table(partition))
    USING partition, pg_snapshot_xmax(pg_current_snapshot())::text::xid8, badged.log_era();
    GET DIAGNOSTICS buried = ROW_COUNT;
    RETURN buried;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.new_era(boolean), badged.bury_unissued(integer) FROM PUBLIC;
-- They tell nothing, and every role that appends or opens the log calls them.
GRANT EXECUTE ON FUNCTION badged.log_era(), badged.log_needs_repair() TO PUBLIC;
