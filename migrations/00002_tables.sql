-- The tables into which the projector folds the log, in the transaction that moves the position.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE badged.partitions (
    partition_id smallint PRIMARY KEY,
    -- A random name, replaced when versions of users may repeat: clients then need a snapshot.
    epoch        text   NOT NULL,
    -- Each writer of users or conversations other than the owner raises the revision, after
    -- locking the row of the position, so that the owner drops its cached rows.
    revision     bigint NOT NULL DEFAULT 0,
    -- The life of Postgres in which the epoch was last valid: timeline and start time of the
    -- postmaster. A new one may have lost commits that clients have seen (ADR 41).
    incarnation  text   NOT NULL
);

-- The statement that moves the position compares both revisions.
CREATE FUNCTION badged.revise_position() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''',
        badged.log_table(NEW.partition_id) || '_offsets');
    RETURN NULL;
END
$$;

CREATE TRIGGER revise_position AFTER UPDATE ON badged.partitions
    FOR EACH ROW EXECUTE FUNCTION badged.revise_position();

-- Partitions may be spread over several databases, the shards of a cluster. Every shard has the
-- tables of all partitions, and holds a partition if badged.partitions has its row. Without a row
-- in this table, the database is not part of a cluster, and holds all partitions.
CREATE TABLE badged.shard (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    cluster   uuid NOT NULL,
    name      text NOT NULL COLLATE "C",
    -- When all shards of the first map were known to have their row. Until then `badged migrate up`
    -- may still be creating the cluster; afterwards, a shard without the row has lost its data.
    formed_at timestamptz
);

-- This shard's copy of the map: which shard holds each partition. The revision counts the
-- moves of the partition. If the copies of shards differ, the entry with the greatest
-- revision is valid. For a split partition the shard is ''.
CREATE TABLE badged.shard_partitions (
    partition_id smallint PRIMARY KEY,
    shard        text   NOT NULL COLLATE "C",
    revision     bigint NOT NULL CHECK (revision > 0),
    -- On the shard that holds the partition, earlier events were copied from the former shard.
    since        timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Returns the partitions that have users, null if no partition was split. On a shard the
-- result follows its copy of the map, which may be older than other copies.
CREATE FUNCTION badged.living_partitions() RETURNS smallint[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    first integer := (SELECT s.partitions FROM badged.settings AS s);
BEGIN
    IF EXISTS (SELECT FROM badged.shard) THEN
        IF EXISTS (SELECT FROM badged.shard_partitions AS m WHERE m.partition_id >= first) THEN
            RETURN ARRAY(SELECT m.partition_id FROM badged.shard_partitions AS m WHERE m.shard <> '' ORDER BY 1);
        END IF;
    ELSIF EXISTS (SELECT FROM badged.partitions AS p WHERE p.partition_id >= first) THEN
        RETURN ARRAY(SELECT p.partition_id FROM badged.partitions AS p ORDER BY 1);
    END IF;
    RETURN NULL;
END
$$;

-- Columns of fixed width come first, the widest at the start, so that rows have no padding. There
-- are no CHECK constraints: Postgres prepares them for each statement, which doubles the time of
-- updating a row.
CREATE TABLE badged.users (
    -- 0 if apps have claimed a read (see claims) and the user has no event yet.
    version                bigint   NOT NULL,
    total                  bigint   NOT NULL,
    mentions               bigint   NOT NULL,
    -- The part of the version that comes from rooms that the user has left; null for a user who
    -- was never a member of a room. See badged.rooms.
    carried                bigint,
    -- How many conversations that are not rooms add something to total.
    unread_conversations   integer NOT NULL DEFAULT 0,
    partition_id           smallint NOT NULL,
    user_id                text     NOT NULL COLLATE "C",
    -- The numbers of categories, and of the categories above them, unless all are 0. Each is an
    -- array of total, unread conversations, mentions, the part of the total that is seen, muted
    -- total, muted conversations, and the part of the total that is only marked. Zeros at the end
    -- are omitted, unless the level follows as eighth element. Empty if path_rows is not null.
    categories             jsonb    NOT NULL,
    -- The part of the total that is seen, muted total, muted conversations, and the part that is
    -- only marked. Null, as for most users, if all are 0.
    extra                  jsonb,
    -- How many rows of badged.paths the user has; null while the column categories has the numbers.
    path_rows              bigint,
    -- Reads by the user's apps of messages that are not yet in the log, oldest first; null for
    -- none.
    claims                 jsonb
) PARTITION BY LIST (partition_id);

CREATE TYPE badged.level AS ENUM ('default', 'all', 'mentions', 'direct_mentions', 'none');

-- The numbers of categories of users who have many categories; see users.categories.
CREATE TABLE badged.paths (
    partition_id smallint NOT NULL,
    user_id      text     NOT NULL COLLATE "C",
    category     text     NOT NULL COLLATE "C",
    -- As in users.categories, without the level.
    numbers      jsonb    NOT NULL,
    level        badged.level
) PARTITION BY LIST (partition_id);

CREATE INDEX paths_levels ON badged.paths (user_id) WHERE level IS NOT NULL;

-- Returns whether a category covers another: it is equal or above. Go and TypeScript do the same.
CREATE FUNCTION badged.covers(path text, category text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN category = path OR starts_with(category, path || '/');

-- Returns all categories that cover a category, itself included.
CREATE FUNCTION badged.paths_of(category text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY(
        SELECT array_to_string((string_to_array(category, '/'))[1:n], '/') FROM generate_series(1, cardinality(string_to_array(category, '/'))) AS n
    );

-- Returns the level that applies to a conversation: its own unless that is default, else the level
-- of the longest category in the JSON object levels that covers its category, else all.
CREATE FUNCTION badged.closest_level(own badged.level, category text, levels jsonb) RETURNS badged.level
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN own <> 'default' THEN own WHEN levels IS NULL THEN 'all' ELSE coalesce(
        (SELECT l.value FROM jsonb_each_text(levels) AS l WHERE badged.covers(l.key, category) ORDER BY length(l.key) DESC LIMIT 1)::badged.level,
        'all') END;

-- A row is an ordinary conversation of a user, or the user's membership in a room. The numbers of a
-- membership are computed from this row and the row of the room.
CREATE TABLE badged.conversations (
    -- The user's version after the last change of the conversation that a client can see, for a
    -- membership without changes of the whole room.
    version         bigint   NOT NULL,
    read_seq        bigint   NOT NULL,
    -- The seen position; null unless it is above the read position.
    seen_seq        bigint,
    -- For a membership with messages that are marked unread: the real read position, which clients
    -- see. Then read_seq is below the first of these messages.
    reached_seq        bigint,
    -- Not used for a membership: the row of the room has it.
    last_seq        bigint   NOT NULL,
    -- The last_seq when the user left, or the seq in the event if that is greater. The user counts
    -- as absent while last_seq is not above it.
    left_seq        bigint,
    -- The value of rooms.changes when the user joined. Null for an ordinary conversation.
    joined          bigint,
    -- For a membership: how many seqs own_set has.
    unread          bigint   NOT NULL,
    -- For a membership: the seqs in mention_set minus those in own_all_set, also below 0.
    mentions        bigint   NOT NULL,
    -- For a membership: how many seqs mention_set and named_all_set have together; null for 0.
    named           bigint,
    level           badged.level NOT NULL,
    -- When the level ends, in microseconds since 1970, and the level that follows it.
    level_until     bigint,
    level_after     badged.level,
    -- Hours since 1970 (UTC) at the latest delivery or mark; 0 for none. Only hours: a change of
    -- an indexed column writes to every index of the table.
    delivered_hour  integer  NOT NULL,
    partition_id    smallint NOT NULL,
    marked_unread   boolean  NOT NULL,
    user_id         text     NOT NULL COLLATE "C",
    conversation_id text     NOT NULL COLLATE "C",
    category        text     NOT NULL COLLATE "C",
    -- The values of unread, mentions and, for a membership, named, if only messages above
    -- the seen position are counted; null if these values are the same.
    unseen          bigint[],
    -- Sets of seqs, encoded as in internal/fold/badge/encode.go; null is an empty set. unread_set:
    -- the delivered messages above read_seq that are not recalled. mention_set: those that mention
    -- the user. recalled_set: the recalled messages, delivered or not; below read_seq only the
    -- last.
    unread_set      bytea,
    mention_set     bytea,
    recalled_set    bytea,
    -- The messages at or below read_seq that the user marked unread; unread includes them.
    again_set       bytea,
    -- For a membership: the user's own messages in the room above read_seq, and in
    -- own_all_set those of own_set that mention everybody. mention_set of a membership has
    -- the messages above read_seq that mention the user by name, except the user's own
    -- messages and messages that mention everybody. The three other sets above are null.
    own_set         bytea,
    own_all_set     bytea,
    -- For a membership: the messages above read_seq that mention everybody and also the user by
    -- name, except the user's own.
    named_all_set   bytea,
    -- For a membership: the last messages that the user sent, and the last messages that
    -- mention the user by name, read or not. The smallest seq in sent_set is no message:
    -- messages up to it may be missing from both sets, or are older than the membership.
    sent_set        bytea,
    named_set       bytea,
    -- The last edited messages, encoded as in internal/fold/badge/revisions.go.
    revisions       bytea
) PARTITION BY LIST (partition_id);
-- For the expiry sweep of unread rows. The index has the read rows too: an index on unread rows
-- only would prevent HOT updates, since a row becomes unread or read with every message.
CREATE INDEX conversations_delivered_hour ON badged.conversations (category, delivered_hour);
-- For the sweep that ends levels.
CREATE INDEX conversations_level_until ON badged.conversations (level_until, conversation_id, user_id) WHERE level_until IS NOT NULL;
-- For the memberships of a user, and for the members of a room.
CREATE INDEX conversations_memberships ON badged.conversations (user_id, conversation_id) WHERE joined IS NOT NULL;
CREATE INDEX conversations_members ON badged.conversations (conversation_id, user_id) WHERE joined IS NOT NULL;

-- A set of seqs in two columns. starts has the first seq of each range of consecutive seqs, in
-- ascending order. before has, for each range, the number of messages in earlier ranges, and then
-- the number of all messages; null if each range is one message. Both are null if the set is empty.
-- These sets are arrays, since every read of a badge searches them by binary search.

-- Returns how many messages of a set are at or below a seq. Postgres inlines the function.
CREATE FUNCTION badged.rank(seq bigint, starts bigint[], before bigint[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    -- At 0, before its first range, only the last operand of least is not null.
    RETURN coalesce(
        least(before[width_bucket(seq, starts)] + (seq - starts[width_bucket(seq, starts)]) + 1,
              before[width_bucket(seq, starts) + 1]),
        width_bucket(seq, starts), 0);

-- Returns how many messages of a set are above a seq.
CREATE FUNCTION badged.above(seq bigint, starts bigint[], before bigint[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    -- The first case, a user who has read none of them, spares the search.
    RETURN coalesce(
        CASE WHEN seq < starts[1] THEN coalesce(before[cardinality(before)], cardinality(starts))
            ELSE coalesce(before[cardinality(before)], cardinality(starts)) - badged.rank(seq, starts, before) END,
        0);

-- The rooms with members in a partition. A message to the room changes this row, and no row of a
-- member. The version of a user that clients see is users.version + users.carried + the sum of
-- changes - joined over the user's memberships.
CREATE TABLE badged.rooms (
    -- Grows by one with every event that changes what a member can see.
    changes         bigint   NOT NULL,
    last_seq        bigint   NOT NULL,
    -- The messages up to this seq are in badged.room_chunks; 0 if there is no chunk.
    since           bigint   NOT NULL,
    -- How many live messages the chunks have, and how many that mention everybody.
    closed_live     bigint   NOT NULL,
    closed_all      bigint   NOT NULL,
    -- Grows by one with every event that changes a message in a chunk.
    closed_changes  bigint   NOT NULL,
    members         bigint   NOT NULL,
    delivered_hour  integer  NOT NULL, -- as in badged.conversations
    partition_id    smallint NOT NULL,
    conversation_id text     NOT NULL COLLATE "C",
    category        text     NOT NULL COLLATE "C",
    -- live_…: the messages that are not recalled. all_…: of these, the ones that mention everybody.
    live_starts     bigint[],
    live_before     bigint[],
    all_starts      bigint[],
    all_before      bigint[],
    -- The recalled messages, posted or not, encoded as other sets.
    recalled_set    bytea,
    -- The keys of the last events that reset the room, 16 bytes each.
    resets          bytea,
    revisions       bytea -- as in badged.conversations
) PARTITION BY LIST (partition_id);
-- For the expiry sweep, as of conversations.
CREATE INDEX rooms_delivered_hour ON badged.rooms (category, delivered_hour);

-- Older messages of rooms with gaps between their seqs, in chunks that get no new message. A chunk
-- has the messages above the bound of the previous chunk, up to its own bound.
CREATE TABLE badged.room_chunks (
    bound           bigint   NOT NULL,
    -- How many messages live_starts and all_starts have.
    live            bigint   NOT NULL,
    mentions_all    bigint   NOT NULL,
    partition_id    smallint NOT NULL,
    conversation_id text     NOT NULL COLLATE "C",
    live_starts     bigint[],
    live_before     bigint[],
    all_starts      bigint[],
    all_before      bigint[],
    recalled_set    bytea
) PARTITION BY LIST (partition_id);

-- Which members sent a message of a room, or are mentioned in it by name. A row is needed while the
-- message is above the member's read position, since a recall then changes the membership.
CREATE TABLE badged.room_marks (
    seq             bigint   NOT NULL,
    partition_id    smallint NOT NULL,
    own             boolean  NOT NULL, -- the user is the sender
    conversation_id text     NOT NULL COLLATE "C",
    user_id         text     NOT NULL COLLATE "C"
) PARTITION BY LIST (partition_id);

-- Progress of the expiry sweep: conversations of a category whose latest delivery was before
-- swept_hour have been examined, and expired if they were unread.
CREATE TABLE badged.expiry_progress (
    partition_id smallint NOT NULL,
    category     text     NOT NULL COLLATE "C",
    swept_hour   integer  NOT NULL CHECK (swept_hour >= 0),
    PRIMARY KEY (partition_id, category)
);

-- A generation has the keys of the events behind its position in the log, up to the position of the
-- next. These rows stay when the keys are deleted, so that a replay decides as the fold did.
CREATE TABLE badged.dedup_generations (
    partition_id   smallint    NOT NULL,
    generation     integer     NOT NULL CHECK (generation > 0),
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    begun_at       timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, generation)
);

-- Each batch adds its event keys, unsorted, to dedup_blocks_pNN. Blocks are merged into runs, which
-- are sorted by key, and runs into larger runs. The pages of a run are in dedup_pages_pNN.
CREATE TABLE badged.dedup_runs (
    partition_id smallint NOT NULL,
    -- The name of the run: when it was begun, in microseconds since 1970.
    run          bigint   NOT NULL,
    generation   integer  NOT NULL,
    -- Events, each counted once for each of its users.
    entries      bigint   NOT NULL DEFAULT 0,
    -- The pages and filters of dropped and abandoned runs are being deleted.
    state        text     NOT NULL CHECK (state IN ('building', 'live', 'dropped')),
    PRIMARY KEY (partition_id, run)
);

-- Filters that prove, for most keys that a run does not have, that they are absent from its pages.
-- A filter covers the pages from first up to the next filter.
CREATE TABLE badged.dedup_filters (
    partition_id smallint NOT NULL,
    run          bigint   NOT NULL,
    first        bigint   NOT NULL,
    entries      bigint   NOT NULL,
    filter       bytea    NOT NULL,
    PRIMARY KEY (partition_id, run, first)
);
-- A filter is random bytes, which do not compress.
ALTER TABLE badged.dedup_filters ALTER COLUMN filter SET STORAGE EXTERNAL;

-- Users whose rows were wrong and have been replayed from the log. They got a version above all
-- versions that clients may have, which a replay of the log alone would not give.
CREATE TABLE badged.healed_users (
    partition_id smallint    NOT NULL,
    user_id      text        NOT NULL COLLATE "C",
    -- The version that the user and its conversations got when they were last healed.
    version      bigint      NOT NULL CHECK (version > 0),
    -- How far the user's versions are ahead of the versions that the log alone gives.
    ahead        bigint      NOT NULL CHECK (ahead BETWEEN 0 AND version),
    healed_at    timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, user_id)
);

-- When events were folded, if that was more than a second after they were appended. Each row ends a
-- run of consecutive events of a partition, which were folded at folded_at or, if that is null, as
-- for events behind the last row, within a second.
CREATE TABLE badged.late_folds (
    partition_id   smallint    NOT NULL,
    number         bigint      NOT NULL,
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    -- When the run began: batches within a second are one run.
    since          timestamptz NOT NULL DEFAULT clock_timestamp(),
    folded_at      timestamptz,
    PRIMARY KEY (partition_id, number)
);

-- How far each partition was folded when a timeline of Postgres ended: everything up to that
-- position has survived. The transaction ids have no meaning in a logical copy.
CREATE TABLE badged.timeline_ends (
    partition      smallint    NOT NULL,
    -- The timeline that ended, and the one that followed it.
    timeline       bigint      NOT NULL,
    next_timeline  bigint      NOT NULL,
    transaction_id bigint      NOT NULL,
    -- Transactions up to transaction_id whose events were not folded.
    pending        bigint[]    NOT NULL,
    noticed_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, timeline),
    CHECK (next_timeline > timeline)
);

-- Creates the table of one partition and attaches it. It does not block readers or writers of the
-- other partitions, as CREATE TABLE … PARTITION OF would.
CREATE FUNCTION badged.create_part(kind text, partition integer, constraints text, options text) RETURNS void
    LANGUAGE plpgsql STRICT
AS $$
DECLARE
    name CONSTANT text := badged.partition_table(kind, partition);
BEGIN
    EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING ALL, %s) %s', name, kind, constraints, options);
    EXECUTE format('ALTER TABLE badged.%I ATTACH PARTITION badged.%I FOR VALUES IN (%s)', kind, name, partition);
END
$$;

-- Creates the tables into which the log of a partition is folded.
CREATE FUNCTION badged.create_state(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
AS $$
DECLARE
    blocks CONSTANT text := badged.partition_table('dedup_blocks', partition);
    pages  CONSTANT text := badged.partition_table('dedup_pages', partition);
BEGIN
    -- Counters are updated far more often than rows are added: with free space in each
    -- page these updates are HOT and do not write to indexes.
    PERFORM badged.create_part('users', partition, 'PRIMARY KEY (user_id)', 'WITH (fillfactor = 80)');
    PERFORM badged.create_part('conversations', partition, 'PRIMARY KEY (user_id, conversation_id)', 'WITH (fillfactor = 75)');
    PERFORM badged.create_part('paths', partition, 'PRIMARY KEY (user_id, category)', 'WITH (fillfactor = 75)');
    -- With this target, arrays stay in the page of their row.
    PERFORM badged.create_part('rooms', partition, 'PRIMARY KEY (conversation_id)', 'WITH (fillfactor = 50, toast_tuple_target = 8160)');
    PERFORM badged.create_part('room_chunks', partition, 'PRIMARY KEY (conversation_id, bound) INCLUDE (live, mentions_all, partition_id)', 'WITH (toast_tuple_target = 8160)');
    PERFORM badged.create_part('room_marks', partition, 'PRIMARY KEY (conversation_id, seq, user_id)', '');

    -- Without an index, since blocks are only read all at once. Blocks up to the size of a page are
    -- stored in the table itself.
    EXECUTE format('CREATE TABLE badged.%I (generation integer NOT NULL, entries bytea NOT NULL) WITH (toast_tuple_target = 8160)', blocks);
    -- Otherwise Postgres would refuse deletes if a publication has all tables.
    EXECUTE format('ALTER TABLE badged.%I REPLICA IDENTITY FULL, ALTER COLUMN entries SET STORAGE EXTERNAL', blocks);
    EXECUTE format($f$
        CREATE TABLE badged.%I (
            run     bigint NOT NULL,
            -- The first eight bytes of the first key in the page, with the first bit inverted to
            -- sort by bytes.
            first   bigint NOT NULL,
            entries bytea  NOT NULL,
            PRIMARY KEY (run, first)
        )$f$, pages);
    EXECUTE format('ALTER TABLE badged.%I ALTER COLUMN entries SET STORAGE EXTERNAL', pages);
END
$$;

INSERT INTO badged.partitions (partition_id, epoch, incarnation)
SELECT p, substr(replace(gen_random_uuid()::text, '-', ''), 1, 12),
    left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text
FROM badged.existing_partitions() AS p;
INSERT INTO badged.dedup_generations SELECT partition_id, 1, '0', 0 FROM badged.partitions;
SELECT badged.create_state(partition_id) FROM badged.partitions;

-- The statements of a batch call these functions only in order to fail: statements that are sent in
-- one round trip stop at the first that fails.

-- Raises an error with an SQLSTATE of class BD, which Postgres itself does not use.
CREATE FUNCTION badged.refuse_batch(code text) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'the partition is not in the expected state' USING ERRCODE = code;
END
$$;

CREATE FUNCTION badged.refuse_missing(missing bigint, expected bigint) RETURNS boolean
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% of % rows are missing: something other than badged has deleted them', missing, expected
        USING ERRCODE = 'no_data_found';
END
$$;

-- Returns the transactions that are pending once the position is at the transaction own: those of
-- the former pending transactions that are still open in a snapshot of own, and the open
-- transactions between the former position and own. The snapshot lists the open transactions below
-- its xmax, the last completed transaction plus one. Any transaction from xmax up to own may be
-- open too. The three parts are in ascending order. The function is PL/pgSQL, so that a session
-- plans them only once.
CREATE FUNCTION badged.pending_at(own xid8, seen pg_snapshot, former_position xid8, former xid8[]) RETURNS xid8[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
    RETURN ARRAY(SELECT x FROM unnest(former) AS x WHERE NOT pg_visible_in_snapshot(x, seen))
        || ARRAY(SELECT x FROM pg_snapshot_xip(seen) AS x WHERE x > former_position AND x < own)
        || ARRAY(SELECT x::text::xid8 FROM generate_series(pg_snapshot_xmax(seen)::text::bigint, own::text::bigint - 1) AS x);
END
$$;
-- +goose StatementEnd
