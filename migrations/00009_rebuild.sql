-- Rebuilding the tables of a partition from its log: into tables beside them,
-- which take their place in one short transaction.
--
-- `badged rebuild` calls the functions below. A role that runs it and does not
-- own the schema needs, beside its rights to the tables,
--
--     GRANT EXECUTE ON FUNCTION badged.create_rebuild_tables(integer), badged.swap_rebuild_tables(integer),
--         badged.drop_rebuild_tables(integer) TO badged;

-- +goose Up

-- What a rebuild of all partitions has done so far: one that was interrupted
-- goes on with the others. Empty after its end.
CREATE TABLE badged.rebuilt_partitions (
    partition_id    smallint    PRIMARY KEY,
    rebuilt_at      timestamptz NOT NULL DEFAULT current_timestamp,
    users           bigint      NOT NULL,
    conversations   bigint      NOT NULL,
    different_users bigint      NOT NULL
);

-- The names, in the schema badged, of the tables of a partition.
CREATE FUNCTION badged.folded_tables(partition integer) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ARRAY['users_p' || lpad(partition::text, greatest(2, length(partition::text)), '0'),
        'conversations_p' || lpad(partition::text, greatest(2, length(partition::text)), '0')];

-- Drops what a rebuild of a partition has left.
-- +goose StatementBegin
CREATE FUNCTION badged.drop_rebuild_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live text;
BEGIN
    FOREACH live IN ARRAY badged.folded_tables(partition) LOOP
        IF to_regclass(format('badged.%I', live || '_rebuild')) IS NOT NULL THEN
            EXECUTE format('DROP TABLE badged.%I', live || '_rebuild');
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Creates empty tables beside those of a partition: with the same columns,
-- constraints, indexes and settings, and the same rights of others.
-- +goose StatementBegin
CREATE FUNCTION badged.create_rebuild_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live    text;
    options text;
    allowed record;
BEGIN
    IF partition NOT BETWEEN 0 AND (SELECT partitions - 1 FROM badged.settings) THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH live IN ARRAY badged.folded_tables(partition) LOOP
        SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '') INTO options
        FROM pg_class WHERE oid = to_regclass(format('badged.%I', live));
        -- The constraint saves the scan for it when the table is attached.
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING ALL, CONSTRAINT of_partition CHECK (partition_id = %s)) %s',
            live || '_rebuild', live, partition, options);
        FOR allowed IN
            SELECT a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
            FROM pg_class AS c, aclexplode(c.relacl) AS a
            WHERE c.oid = to_regclass(format('badged.%I', live)) AND a.grantee <> c.relowner
        LOOP
            EXECUTE format('GRANT %s ON badged.%I TO %s', allowed.privilege_type, live || '_rebuild', allowed.grantee);
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Puts the rebuilt tables of a partition in the place of the live ones, which
-- are dropped. It locks out all readers of users and of conversations until the
-- transaction ends, in the order in which they lock; who calls it sets
-- lock_timeout, since others wait behind it while it waits.
-- +goose StatementBegin
CREATE FUNCTION badged.swap_rebuild_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live    text;
    parent  text;
    names   jsonb;
    rebuilt record;
BEGIN
    FOREACH live IN ARRAY badged.folded_tables(partition) LOOP
        EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', split_part(live, '_', 1));
        EXECUTE format('LOCK TABLE badged.%I IN ACCESS EXCLUSIVE MODE', live);
    END LOOP;
    FOREACH live IN ARRAY badged.folded_tables(partition) LOOP
        parent := split_part(live, '_', 1);
        -- The indexes keep their names, which go by what they are.
        SELECT jsonb_object_agg(regexp_replace(pg_get_indexdef(c.oid), 'INDEX \S+ ON \S+ ', ''), c.relname) INTO names
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass(format('badged.%I', live));
        EXECUTE format('DROP TABLE badged.%I', live);
        EXECUTE format('ALTER TABLE badged.%I RENAME TO %I', live || '_rebuild', live);
        FOR rebuilt IN
            SELECT c.relname AS name, names ->> regexp_replace(pg_get_indexdef(c.oid), 'INDEX \S+ ON \S+ ', '') AS former
            FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
            WHERE i.indrelid = to_regclass(format('badged.%I', live))
        LOOP
            EXECUTE format('ALTER INDEX badged.%I RENAME TO %I', rebuilt.name, rebuilt.former);
        END LOOP;
        EXECUTE format('ALTER TABLE badged.%I ATTACH PARTITION badged.%I FOR VALUES IN (%s)', parent, live, partition);
        EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT of_partition', live);
    END LOOP;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.folded_tables(integer), badged.drop_rebuild_tables(integer),
    badged.create_rebuild_tables(integer), badged.swap_rebuild_tables(integer) FROM PUBLIC;
