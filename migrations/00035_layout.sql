-- Partitions that were split: which ones have users.

-- +goose Up

-- Returns the partitions that have users, null if none was split. A shard knows those of
-- its cluster as far as its copy of the map does: the entry of a partition that was split
-- names no shard.
-- +goose StatementBegin
CREATE FUNCTION badged.living_partitions() RETURNS smallint[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    first integer := (SELECT s.partitions FROM badged.settings AS s);
BEGIN
    IF EXISTS (SELECT FROM badged.shard) THEN
        IF EXISTS (SELECT FROM badged.shard_partitions AS m WHERE m.partition_id >= first) THEN
            RETURN ARRAY(SELECT m.partition_id FROM badged.shard_partitions AS m WHERE m.shard <> '' ORDER BY 1);
        END IF;
    ELSIF EXISTS (SELECT FROM badged.partitions AS p WHERE p.partition_id >= first) THEN
        RETURN ARRAY(SELECT p.partition_id FROM badged.partitions AS p ORDER BY 1);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- It reveals nothing, and every role that appends calls it.
GRANT EXECUTE ON FUNCTION badged.living_partitions() TO PUBLIC;
