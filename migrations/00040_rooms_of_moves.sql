-- Messages to rooms go on while a partition with members moves.

-- +goose Up

-- Rows of a partition that is moving here do not count until the transaction that makes this
-- database hold it. Servers refuse a message that would be in neither database: they say
-- which partitions they take each to hold.
CREATE OR REPLACE VIEW badged.room_directory AS
SELECT r.conversation_id, r.partition_id
FROM badged.room_partitions AS r
WHERE EXISTS (SELECT FROM badged.partitions AS p WHERE p.partition_id = r.partition_id);
