-- No place of a row that moves with its partition is given twice.

-- +goose Up

-- Of the target: the offset behind which those of its rows begin. No place that the
-- partition has had, as in archives, has a greater one.
ALTER TABLE badged.moves ADD COLUMN behind bigint NOT NULL DEFAULT 0;
