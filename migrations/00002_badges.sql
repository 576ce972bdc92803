-- What the projector folds the log into. Every table is written by the owner of
-- a partition only, in the one transaction that also moves its position.

-- +goose Up
CREATE TABLE badged.partitions (
    partition_id smallint PRIMARY KEY,
    -- Changes when the versions of this partition's users start afresh.
    epoch        text NOT NULL
);

CREATE TYPE badged.level AS ENUM ('all', 'mentions', 'none');

-- For people and for queries over all partitions; the projector works on the
-- partitions themselves.
CREATE TABLE badged.users (
    partition_id smallint NOT NULL,
    version      bigint   NOT NULL CHECK (version > 0),
    total        bigint   NOT NULL CHECK (total >= 0),
    mentions     bigint   NOT NULL CHECK (mentions >= 0),
    user_id      text     NOT NULL COLLATE "C",
    -- The total by category, without zeros.
    categories   jsonb    NOT NULL
) PARTITION BY LIST (partition_id);

CREATE TABLE badged.conversations (
    partition_id    smallint NOT NULL,
    -- The user's version as of the last change that a client can see.
    version         bigint   NOT NULL CHECK (version >= 0),
    read_seq        bigint   NOT NULL CHECK (read_seq >= 0),
    last_seq        bigint   NOT NULL CHECK (last_seq >= 0),
    -- last_seq at the time the user left; the user is out while it still is.
    left_seq        bigint   CHECK (left_seq BETWEEN 0 AND last_seq),
    unread          bigint   NOT NULL CHECK (unread >= 0 AND (unread = 0) = (isempty(unread_set) AND unread_block IS NULL)),
    mentions        bigint   NOT NULL CHECK (mentions BETWEEN 0 AND unread AND (mentions = 0) = (isempty(mention_set) AND mention_block IS NULL)),
    level           badged.level NOT NULL,
    marked_unread   boolean  NOT NULL,
    user_id         text     NOT NULL COLLATE "C",
    conversation_id text     NOT NULL COLLATE "C",
    category        text     NOT NULL COLLATE "C",
    -- Delivered, not recalled, above read_seq; those of them that mention the
    -- user; and the recalled above read_seq, delivered or not.
    unread_set      int8multirange NOT NULL CHECK (lower(unread_set) > read_seq),
    mention_set     int8multirange NOT NULL CHECK (mention_set <@ unread_set OR unread_block IS NOT NULL),
    recalled_set    int8multirange NOT NULL CHECK (lower(recalled_set) > read_seq),
    -- The oldest part of a set with too many ranges is only counted: {from, to,
    -- how many}, all below the ranges.
    unread_block    bigint[] CHECK (cardinality(unread_block) = 3 AND unread_block[1] > read_seq AND unread_block[3] > 0),
    mention_block   bigint[] CHECK (cardinality(mention_block) = 3 AND mention_block[1] > read_seq AND mention_block[3] > 0)
) PARTITION BY LIST (partition_id);

CREATE TABLE badged.dead_letters (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id   smallint    NOT NULL,
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    uuid           uuid        NOT NULL,
    payload        json,
    reason         text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT current_timestamp,
    UNIQUE (partition_id, transaction_id, "offset")
);

-- +goose StatementBegin
DO $$
DECLARE
    p  integer;
    nn text;
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        nn := lpad(p::text, greatest(2, length(p::text)), '0');

        INSERT INTO badged.partitions
        VALUES (p, substr(replace(gen_random_uuid()::text, '-', ''), 1, 12));

        -- Counters are updated far more often than rows are added: room in
        -- each page keeps those updates off the indexes.
        EXECUTE format($f$
            CREATE TABLE badged.%I PARTITION OF badged.users
                (PRIMARY KEY (user_id)) FOR VALUES IN (%s)
                WITH (fillfactor = 80)$f$, 'users_p' || nn, p);
        EXECUTE format($f$
            CREATE TABLE badged.%I PARTITION OF badged.conversations
                (PRIMARY KEY (user_id, conversation_id)) FOR VALUES IN (%s)
                WITH (fillfactor = 75)$f$, 'conversations_p' || nn, p);

        -- The keys of the events that have been folded.
        EXECUTE format($f$
            CREATE TABLE badged.%I (key uuid PRIMARY KEY)$f$, 'dedup_keys_p' || nn);
    END LOOP;
END
$$;
-- +goose StatementEnd
