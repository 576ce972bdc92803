-- Messages that wait again keep the place where they waited first.

-- +goose Up

-- The shard for which these messages waited first, and their id then: positions name these.
-- Both are null until messages wait again.
ALTER TABLE badged.waiting_messages ADD COLUMN first_shard text COLLATE "C", ADD COLUMN first_id bigint;
CREATE INDEX waiting_messages_first ON badged.waiting_messages (first_shard, first_id) WHERE first_id IS NOT NULL;
