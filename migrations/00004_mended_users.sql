-- Users whose rows were wrong and have been folded from the log again. A mended
-- state takes a version above all that clients may hold, and so one that the
-- log alone does not give: what the difference is must be known to whoever
-- compares the two again.

-- +goose Up
CREATE TABLE badged.mended_users (
    partition_id smallint    NOT NULL,
    user_id      text        NOT NULL COLLATE "C",
    -- What the user and its conversations got when they were mended last.
    version      bigint      NOT NULL CHECK (version > 0),
    -- How far the user's versions are ahead of those that the log gives.
    ahead        bigint      NOT NULL CHECK (ahead BETWEEN 0 AND version),
    mended_at    timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, user_id)
);
