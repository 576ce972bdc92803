-- Keys of events are remembered in generations, each a table of its own per
-- partition, so that forgetting is dropping a table.
--
-- The projector creates the table of the next generation ahead and drops those
-- that are probed no more, by the two functions below. A role that serves and
-- does not own the schema needs, beside its rights to the tables,
--
--     GRANT EXECUTE ON FUNCTION badged.create_dedup_generation(integer), badged.drop_dedup_generations(integer) TO badged;

-- +goose Up

-- A generation holds the keys of the events behind its position in the log, up
-- to where the next begins. Rows stay when the tables go: they say how every
-- repetition in the log was decided.
CREATE TABLE badged.dedup_generations (
    partition_id   smallint    NOT NULL,
    generation     integer     NOT NULL CHECK (generation > 0),
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    begun_at       timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, generation)
);

-- The table, in the schema badged, of a generation.
CREATE FUNCTION badged.dedup_keys_table(partition integer, generation integer) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN 'dedup_keys_p' || lpad(partition::text, greatest(2, length(partition::text)), '0') || '_g' || generation::text;

-- What has been remembered so far is the first generation.
-- +goose StatementBegin
DO $$
DECLARE
    p       integer;
    present text;
    first   text;
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        first := badged.dedup_keys_table(p, 1);
        present := split_part(first, '_g', 1);
        EXECUTE format('ALTER TABLE badged.%I RENAME TO %I', present, first);
        EXECUTE format('ALTER TABLE badged.%I RENAME CONSTRAINT %I TO %I', first, present || '_pkey', first || '_pkey');
        INSERT INTO badged.dedup_generations VALUES (p, 1, '0', 0);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Makes sure that there is a table for the generation after the present one,
-- with the rights that others have to the present one's, and returns the
-- number of that generation.
-- +goose StatementBegin
CREATE FUNCTION badged.create_dedup_generation(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    present integer := (SELECT max(generation) FROM badged.dedup_generations WHERE partition_id = partition);
    next    text    := badged.dedup_keys_table(partition, present + 1);
    allowed record;
BEGIN
    IF present IS NULL THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    ELSIF to_regclass(format('badged.%I', next)) IS NOT NULL THEN
        RETURN present + 1;
    END IF;
    EXECUTE format('CREATE TABLE badged.%I (key uuid PRIMARY KEY)', next);
    FOR allowed IN
        SELECT a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.oid = to_regclass(format('badged.%I', badged.dedup_keys_table(partition, present))) AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT %s ON badged.%I TO %s', allowed.privilege_type, next, allowed.grantee);
    END LOOP;
    RETURN present + 1;
EXCEPTION
    WHEN duplicate_table OR duplicate_object OR unique_violation THEN -- another has been faster
        RETURN present + 1;
END
$$;
-- +goose StatementEnd

-- Drops the tables of the generations before the present one and the two that
-- are probed with it, the oldest first, and returns how many it had to leave:
-- it does not wait for whoever holds a lock on one, such as pg_dump, since
-- others would have to wait behind it.
-- +goose StatementBegin
CREATE FUNCTION badged.drop_dedup_generations(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    youngest integer := (SELECT max(generation) - 3 FROM badged.dedup_generations WHERE partition_id = partition);
    oldest   integer := youngest + 1;
    name     text;
BEGIN
    WHILE to_regclass(format('badged.%I', badged.dedup_keys_table(partition, oldest - 1))) IS NOT NULL LOOP
        oldest := oldest - 1;
    END LOOP;
    FOR g IN oldest .. youngest LOOP
        name := badged.dedup_keys_table(partition, g);
        BEGIN
            EXECUTE format('LOCK TABLE badged.%I IN ACCESS EXCLUSIVE MODE NOWAIT', name);
            EXECUTE format('DROP TABLE badged.%I', name);
        EXCEPTION
            WHEN lock_not_available THEN
                RETURN youngest - g + 1;
            WHEN undefined_table THEN
                NULL; -- another has been faster
        END;
    END LOOP;
    RETURN 0;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.dedup_keys_table(integer, integer), badged.create_dedup_generation(integer),
    badged.drop_dedup_generations(integer) FROM PUBLIC;
