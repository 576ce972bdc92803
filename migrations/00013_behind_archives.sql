-- Keeps builds that know nothing of archives from making the tables what is left
-- of a log that was cut, and repairs of a log from holding up publishers.

-- +goose Up

-- Whoever folds the log again keeps the base where it is, by a lock, before the
-- first look at it. So a transaction that is about to write what the log says,
-- and has no such lock, would write what the rest of the log says.
-- +goose StatementBegin
CREATE FUNCTION badged.require_base(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM badged.bases AS b WHERE b.partition_id = partition) AND NOT EXISTS (
        SELECT FROM pg_locks
        WHERE pid = pg_backend_pid() AND granted AND locktype = 'relation'
          AND relation = to_regclass(format('badged.%I', (badged.base_tables(partition))[1]))
    ) THEN
        RAISE EXCEPTION 'the log of partition % has been cut, and does not begin with its first event', partition
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Use a release of badged that knows archives.';
    END IF;
END
$$;
-- +goose StatementEnd

-- As before, but where the log has been cut only for those who know it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.create_rebuild_tables(partition integer) RETURNS void
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
    PERFORM badged.require_base(partition);
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

-- Nor does anybody else write rows anew, which raises the revision.
-- +goose StatementBegin
CREATE FUNCTION badged.revise_behind_base() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM badged.require_base(NEW.partition_id);
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER behind_base BEFORE UPDATE OF revision ON badged.partitions
    FOR EACH ROW EXECUTE FUNCTION badged.revise_behind_base();

-- As before, but it waits for locks for 100 ms, since whoever publishes waits
-- behind it, and then fails with lock_not_available.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.settle_log_ranges(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
    topic text    := badged.log_table(partition);
    first integer := (SELECT min(number) FROM badged.log_ranges AS r WHERE r.partition_id = partition);
    name  text    := badged.log_range_table(partition, first);
    next  xid8    := pg_snapshot_xmax(pg_current_snapshot())::text::xid8;
    other integer;
    alone boolean := true;
    found boolean;
BEGIN
    EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', topic);
    FOR other IN SELECT number FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number > first LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I)', badged.log_range_table(partition, other)) INTO found;
        alone := alone AND NOT found;
    END LOOP;
    IF alone THEN
        FOR other IN SELECT number FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number > first LOOP
            EXECUTE format('DROP TABLE badged.%I', badged.log_range_table(partition, other));
        END LOOP;
        DELETE FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number > first;
        EXECUTE format('ALTER TABLE badged.%I DETACH PARTITION badged.%I', topic, name);
        EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT IF EXISTS bound', name);
        EXECUTE format('ALTER TABLE badged.%I ATTACH PARTITION badged.%I FOR VALUES FROM (MINVALUE) TO (MAXVALUE)', topic, name);
    END IF;
    UPDATE badged.log_ranges AS r SET ends = CASE WHEN NOT alone THEN ends END, bound = CASE WHEN NOT alone THEN bound END,
        made_at = current_timestamp, made_id = next
    WHERE r.partition_id = partition AND number = (SELECT max(number) FROM badged.log_ranges AS r WHERE r.partition_id = partition);
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.require_base(integer), badged.revise_behind_base() FROM PUBLIC;
