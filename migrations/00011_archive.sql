-- Cutting off the log: the events of complete ranges go to files, and what they
-- add up to becomes the base from which the log is folded again.
--
-- `badged archive` calls the functions below. A role that runs it and does not
-- own the schema needs, beside its rights to the tables,
--
--     GRANT EXECUTE ON FUNCTION badged.create_base_tables(integer), badged.drop_base_tables(integer),
--         badged.swap_base_tables(integer), badged.drop_log_ranges(integer) TO badged;

-- +goose Up

-- What names the log, also in a copy of the database: an archive belongs to it.
CREATE TABLE badged.log_identity (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    log_id    uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO badged.log_identity DEFAULT VALUES;

-- Where the log of a partition begins: behind an event that is archived. Without
-- a row, at its start.
CREATE TABLE badged.bases (
    partition_id   smallint PRIMARY KEY,
    transaction_id xid8     NOT NULL,
    "offset"       bigint   NOT NULL,
    -- That of the event keys that was the present one there, 0 for none.
    generation     integer  NOT NULL,
    -- Events that are archived, and when the latest of them was appended.
    events         bigint   NOT NULL,
    appended_until timestamptz NOT NULL
);

-- The files that hold them, as in the manifest of the archive.
CREATE TABLE badged.archived_files (
    partition_id smallint    NOT NULL,
    number       integer     NOT NULL,
    -- Of log_ranges.
    range        integer     NOT NULL,
    events       bigint      NOT NULL,
    sha256       text        NOT NULL,
    archived_at  timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, number)
);

-- The names, in the schema badged, of the tables of a partition's base.
CREATE FUNCTION badged.base_tables(partition integer) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ARRAY['users_p' || lpad(partition::text, greatest(2, length(partition::text)), '0') || '_base',
        'conversations_p' || lpad(partition::text, greatest(2, length(partition::text)), '0') || '_base',
        'keys_p' || lpad(partition::text, greatest(2, length(partition::text)), '0') || '_base'];

-- What the events up to there add up to: users, conversations, and the keys of
-- events that were remembered, by generation. Whoever changes the columns of
-- users or conversations changes these too.
-- +goose StatementBegin
DO $$
DECLARE
    p    integer;
    base text[];
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        base := badged.base_tables(p);
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.users INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (user_id))', base[1]);
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.conversations INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (user_id, conversation_id))', base[2]);
        EXECUTE format('CREATE TABLE badged.%I (key uuid PRIMARY KEY, generation integer NOT NULL)', base[3]);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Drops what an archiving of a partition has left.
-- +goose StatementBegin
CREATE FUNCTION badged.drop_base_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text;
BEGIN
    FOREACH base IN ARRAY badged.base_tables(partition) LOOP
        IF to_regclass(format('badged.%I', base || '_next')) IS NOT NULL THEN
            EXECUTE format('DROP TABLE badged.%I', base || '_next');
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Creates empty tables beside those of a base, with the same rights of others.
-- +goose StatementBegin
CREATE FUNCTION badged.create_base_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base    text;
    allowed record;
BEGIN
    IF partition NOT BETWEEN 0 AND (SELECT partitions - 1 FROM badged.settings) THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH base IN ARRAY badged.base_tables(partition) LOOP
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING ALL)', base || '_next', base);
        FOR allowed IN
            SELECT a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
            FROM pg_class AS c, aclexplode(c.relacl) AS a
            WHERE c.oid = to_regclass(format('badged.%I', base)) AND a.grantee <> c.relowner
        LOOP
            EXECUTE format('GRANT %s ON badged.%I TO %s', allowed.privilege_type, base || '_next', allowed.grantee);
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Puts those tables in the place of the base. It locks out whoever folds the log
-- again; who calls it sets lock_timeout.
-- +goose StatementBegin
CREATE FUNCTION badged.swap_base_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    base text;
BEGIN
    FOREACH base IN ARRAY badged.base_tables(partition) LOOP
        EXECUTE format('LOCK TABLE badged.%I IN ACCESS EXCLUSIVE MODE', base);
    END LOOP;
    FOREACH base IN ARRAY badged.base_tables(partition) LOOP
        EXECUTE format('DROP TABLE badged.%I', base);
        EXECUTE format('ALTER TABLE badged.%I RENAME TO %I', base || '_next', base);
        EXECUTE format('ALTER TABLE badged.%I RENAME CONSTRAINT %I TO %I', base, base || '_next_pkey', base || '_pkey');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Drops the first ranges of the log of a partition that are complete and have no
-- event behind the base, and returns how many. In their place comes an empty
-- range from the start, for whoever comes with an id from before: the log then
-- was restored into another cluster, and is to be repaired. It locks out whoever
-- reads or publishes, for some milliseconds; who calls it sets lock_timeout.
-- +goose StatementBegin
CREATE FUNCTION badged.drop_log_ranges(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    -- By the index also where nothing is known of a table: others wait.
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    topic   text := badged.log_table(partition);
    horizon xid8 := pg_snapshot_xmin(pg_current_snapshot())::text::xid8;
    base    badged.bases;
    log     badged.log_ranges;
    gone    integer[] := '{}';
    start   xid8;
    needed  boolean;
BEGIN
    SELECT * INTO base FROM badged.bases AS b WHERE b.partition_id = partition;
    IF base.partition_id IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', topic);
    FOR log IN SELECT * FROM badged.log_ranges AS r WHERE r.partition_id = partition ORDER BY number LOOP
        EXIT WHEN log.ends IS NULL OR log.ends > horizon;
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I WHERE (transaction_id, "offset") > ($1, $2))', badged.log_range_table(partition, log.number))
        INTO needed USING base.transaction_id, base."offset";
        EXIT WHEN needed;
        gone := gone || log.number;
        start := log.ends;
    END LOOP;
    IF gone = '{}' OR gone = '{0}' THEN
        RETURN 0;
    END IF;
    FOR i IN 1 .. cardinality(gone) LOOP
        EXECUTE format('DROP TABLE badged.%I', badged.log_range_table(partition, gone[i]));
    END LOOP;
    DELETE FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number = ANY (gone);
    EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.%I FOR VALUES FROM (MINVALUE) TO (%L)',
        badged.log_range_table(partition, 0), topic, start);
    INSERT INTO badged.log_ranges (partition_id, number, starts, ends, made_id) VALUES (partition, 0, '0', start, horizon);
    RETURN cardinality(gone);
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.base_tables(integer), badged.drop_base_tables(integer), badged.create_base_tables(integer),
    badged.swap_base_tables(integer), badged.drop_log_ranges(integer) FROM PUBLIC;
