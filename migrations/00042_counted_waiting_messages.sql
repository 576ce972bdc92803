-- How many messages wait for shards that are away, without reading them.

-- +goose Up

-- Servers of before write calls without it: these count as one message.
ALTER TABLE badged.waiting_messages ADD COLUMN count integer NOT NULL DEFAULT 1;
UPDATE badged.waiting_messages SET count = json_array_length(messages::json);
