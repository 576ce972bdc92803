-- Splitting a partition into two while it serves.

-- +goose Up

-- Creates the tables of a partition as those are of the partition of the first level from
-- which it comes: with indexes, settings, policies and grants. It does nothing for tables
-- that are there. The partition is not held, and refuses events. Set lock_timeout.
-- +goose StatementBegin
CREATE FUNCTION badged.create_partition(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n       CONSTANT integer := (SELECT s.partitions FROM badged.settings AS s);
    first   CONSTANT integer := (SELECT (partition - l.base) % n FROM badged.level_of(partition) AS l);
    like_   CONSTANT text := badged.partition_table('', first); -- such as _p00
    suffix  CONSTANT text := badged.partition_table('', partition);
    log     CONSTANT text := badged.log_table(partition);
    t       record;
    made    text;
    part    record;
BEGIN
    FOR t IN
        SELECT c.oid, c.relname::text AS name, c.relkind, c.relrowsecurity, c.relreplident,
            coalesce('WITH (' || array_to_string(c.reloptions, ', ') || ')', '') AS options, i.inhparent::regclass AS parent
        FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
        WHERE c.relnamespace = 'badged'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname ~ (like_ || '(_offsets|_baseline)?$')
        ORDER BY c.relname
    LOOP
        made := replace(t.name, like_, suffix);
        CONTINUE WHEN to_regclass(format('badged.%I', made)) IS NOT NULL;
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING ALL) %s %s', made, t.name,
            CASE t.relkind WHEN 'p' THEN 'PARTITION BY ' || pg_get_partkeydef(t.oid) END, t.options);
        IF t.relreplident = 'f' THEN -- which LIKE leaves out
            EXECUTE format('ALTER TABLE badged.%I REPLICA IDENTITY FULL', made);
        END IF;
        IF t.parent IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s ATTACH PARTITION badged.%I FOR VALUES IN (%s)', t.parent, made, partition);
        END IF;
        FOR part IN SELECT policyname, qual, with_check FROM pg_policies WHERE schemaname = 'badged' AND tablename = t.name LOOP
            EXECUTE format('CREATE POLICY %I ON badged.%I USING (%s) WITH CHECK (%s)', part.policyname, made, part.qual, part.with_check);
        END LOOP;
        IF t.relrowsecurity THEN
            EXECUTE format('ALTER TABLE badged.%I ENABLE ROW LEVEL SECURITY', made);
        END IF;
        PERFORM badged.copy_grants(t.name, made);
        -- Those to columns.
        FOR part IN
            SELECT g.privilege_type, a.attname, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END AS grantee
            FROM pg_attribute AS a, aclexplode(a.attacl) AS g
            WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
        LOOP
            EXECUTE format('GRANT %s (%I) ON badged.%I TO %s', part.privilege_type, part.attname, made, part.grantee);
        END LOOP;
    END LOOP;
    FOR t IN
        SELECT c.conname, r.relname::text AS name, pg_get_constraintdef(c.oid) AS def
        FROM pg_constraint AS c JOIN pg_class AS r ON r.oid = c.conrelid
        WHERE r.relnamespace = 'badged'::regnamespace AND c.contype = 'f' AND r.relname ~ (like_ || '$')
    LOOP
        made := replace(t.name, like_, suffix);
        IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = format('badged.%I', made)::regclass AND contype = 'f' AND conname = replace(t.conname, like_, suffix)) THEN
            EXECUTE format('ALTER TABLE badged.%I ADD CONSTRAINT %I %s', made, replace(t.conname, like_, suffix), replace(t.def, like_ || '(', suffix || '('));
        END IF;
    END LOOP;
    IF NOT EXISTS (SELECT FROM badged.log_ranges AS r WHERE r.partition_id = partition) THEN
        PERFORM badged.create_log_range(partition, 1, 'MINVALUE', 'MAXVALUE');
        INSERT INTO badged.log_ranges (partition_id, number, starts, made_id)
        VALUES (partition, 1, '0', pg_snapshot_xmax(pg_current_snapshot())::text::xid8);
        EXECUTE format('CREATE TRIGGER not_held BEFORE INSERT ON badged.%I FOR EACH STATEMENT EXECUTE FUNCTION badged.refuse_not_held(%s)', log, partition);
    END IF;
END
$$;
-- +goose StatementEnd

-- Ends a partition, and makes this database hold the two that have its users and all its
-- rows. The caller keeps its gates closed. The positions of those who read its log, its
-- epoch and its revision are theirs, and each counts half of the events that it has folded.
-- Whether it was held until now is returned.
-- +goose StatementBegin
CREATE FUNCTION badged.split_partition(partition integer, children integer[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    offsets CONSTANT text := badged.log_table(partition) || '_offsets';
    sequence CONSTANT text := pg_get_serial_sequence('badged.' || badged.log_table(partition), 'offset');
    shard   CONSTANT text := (SELECT s.name FROM badged.shard AS s);
    child   integer;
    log     text;
    moved   bigint;
BEGIN
    FOREACH child IN ARRAY children LOOP
        log := badged.log_table(child);
        EXECUTE format('INSERT INTO badged.%I SELECT * FROM badged.%I', log || '_offsets', offsets);
        -- counted is folded, unless conversations are to be counted again.
        EXECUTE format('UPDATE badged.%I SET folded = (folded + $1) / 2, counted = counted - folded + (folded + $1) / 2', log || '_offsets')
        USING CASE child WHEN children[1] THEN 1 ELSE 0 END;
        -- Places behind the position are given to events that are folded late.
        EXECUTE format('SELECT setval(pg_get_serial_sequence(%L, ''offset''), coalesce(pg_sequence_last_value(%L), 1))', 'badged.' || log, sequence) INTO moved;
        INSERT INTO badged.partitions (partition_id, epoch, revision, incarnation)
        SELECT child, p.epoch, p.revision, p.incarnation FROM badged.partitions AS p WHERE p.partition_id = partition;
        INSERT INTO badged.timeline_ends (partition, timeline, next_timeline, transaction_id, pending, noticed_at)
        SELECT child, t.timeline, t.next_timeline, t.transaction_id, t.pending, t.noticed_at FROM badged.timeline_ends AS t WHERE t.partition = split_partition.partition
        ON CONFLICT DO NOTHING;
        IF shard IS NOT NULL THEN
            PERFORM badged.map_partition(child, shard, 1);
        END IF;
        EXECUTE format('DROP TRIGGER IF EXISTS gate ON badged.%I', log);
    END LOOP;
    -- The fence of batches.
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''', offsets);
    IF shard IS NOT NULL THEN
        PERFORM badged.map_partition(partition, '', (SELECT m.revision + 1 FROM badged.shard_partitions AS m WHERE m.partition_id = partition));
    END IF;
    DELETE FROM badged.partitions AS p WHERE p.partition_id = partition;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE badged.moves AS m SET state = 'released' WHERE m.partition_id = partition;
    PERFORM badged.make_append_functions();
    RETURN true;
END
$$;
-- +goose StatementEnd

-- A partition that came from splitting another may move here, where publishing in SQL has
-- not known it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.hold_partition(partition integer, revision bigint, epoch text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    log text := badged.log_table(partition);
BEGIN
    IF NOT EXISTS (SELECT FROM badged.shard) THEN
        RAISE EXCEPTION 'this database is not a shard' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    EXECUTE format('DROP TRIGGER IF EXISTS not_held ON badged.%I', log);
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''', log || '_offsets');
    INSERT INTO badged.partitions (partition_id, epoch, incarnation)
    VALUES (partition, epoch, left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text);
    PERFORM badged.map_partition(partition, s.name, revision) FROM badged.shard AS s;
    IF partition >= (SELECT s.partitions FROM badged.settings AS s) THEN
        PERFORM badged.make_append_functions();
    END IF;
END
$$;
-- +goose StatementEnd

-- The log may have partitions that came from others.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.is_used() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p integer;
    used boolean := EXISTS (SELECT FROM badged.devices) OR EXISTS (SELECT FROM badged.revocations) OR EXISTS (SELECT FROM badged.dead_letters);
BEGIN
    FOR p IN SELECT badged.existing_partitions() LOOP
        EXIT WHEN used;
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I) OR EXISTS (SELECT FROM badged.%I WHERE folded > 0)',
            badged.log_table(p), badged.log_table(p) || '_offsets') INTO used;
    END LOOP;
    RETURN used;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION badged.create_partition(integer), badged.split_partition(integer, integer[]) FROM PUBLIC;
