-- A move that was begun before a log was renumbered is begun anew.

-- +goose Up

-- The era of this database when the move began: what the other shard has of the log is
-- counted by places that renumbering changes.
ALTER TABLE badged.moves ADD COLUMN era bigint;
