-- What waits for shards that are away, and what a killed migrate up had left to do.

-- +goose Up

-- As what the role was granted its privileges last: the schema and the script. If one has
-- changed since, the next `badged migrate up` grants them again.
ALTER TABLE badged.granted_roles ADD COLUMN granted_as text NOT NULL DEFAULT '';

-- Messages to rooms that another shard lacks, since it was away: those of a call, as a JSON
-- array of events. They are deleted once they are delivered.
CREATE TABLE badged.waiting_messages (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The shard that lacks them, and how many moves of partitions the map had then.
    shard    text        NOT NULL,
    moves    bigint      NOT NULL,
    kept_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    messages text        NOT NULL
);
CREATE INDEX waiting_messages_of_shard ON badged.waiting_messages (shard, id);
