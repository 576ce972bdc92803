-- Which dead letters were retried or discarded.

-- +goose Up

-- The places of events that were put aside as dead letters and are none any more.
-- They were not folded there: a release that can decode them must not fold them
-- when it replays the log.
CREATE TABLE badged.settled_letters (
    partition_id   smallint NOT NULL,
    transaction_id xid8     NOT NULL,
    "offset"       bigint   NOT NULL,
    index          smallint NOT NULL,
    -- As in badged.dead_letters.
    user_ids       text[],
    PRIMARY KEY (partition_id, transaction_id, "offset", index)
);
