-- Joining rooms without the right to write their directory.

-- +goose Up

-- Adds partitions to rooms. Publishers may call it, and write the table in no other
-- way: servers rely on its partitions.
-- +goose StatementBegin
CREATE FUNCTION badged.add_room_partitions(rooms text[], partitions smallint[]) RETURNS void
    LANGUAGE sql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO badged.room_partitions (conversation_id, partition_id)
    SELECT room, partition
    FROM unnest(rooms, partitions) AS joined (room, partition), badged.settings AS s
    WHERE partition BETWEEN 0 AND s.partitions - 1;
END;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION badged.add_room_partitions(text[], smallint[]) FROM PUBLIC;
