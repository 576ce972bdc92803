-- What the projector folds the log into. The owner of a partition writes it, in
-- the transaction that also moves the partition's position.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE badged.partitions (
    partition_id smallint PRIMARY KEY,
    -- Changes when the versions of the partition's users start afresh.
    epoch        text   NOT NULL,
    -- Every other writer of users or conversations raises it, behind the row of the
    -- position, so that the owner reads its cached rows again.
    revision     bigint NOT NULL DEFAULT 0,
    -- The life of Postgres in which the epoch was last known to be right: timeline
    -- and start of the postmaster. A promotion and a point-in-time recovery begin a
    -- timeline; a restored data directory, and a crash, begin with a start. They may
    -- have lost commits that clients were told of, so the projector compares it in
    -- every batch and begins a new epoch if it differs.
    incarnation  text   NOT NULL
);

-- The statement that moves the position compares the revision: it is beside the position
-- too.
CREATE FUNCTION badged.revise_position() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('UPDATE badged.%I SET revision = revision + 1 WHERE consumer_group = ''projector''',
        badged.log_table(NEW.partition_id) || '_offsets');
    RETURN NULL;
END
$$;

CREATE TRIGGER revise_position AFTER UPDATE ON badged.partitions
    FOR EACH ROW EXECUTE FUNCTION badged.revise_position();

-- Partitions may be spread over several databases, the shards of a cluster. Every shard has
-- the tables of all partitions; those of partitions that it does not hold are empty. A
-- shard holds a partition if badged.partitions has its row.

-- Which shard of which cluster this database is. Without a row it is not part of a
-- cluster, and holds all partitions.
CREATE TABLE badged.shard (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    cluster   uuid NOT NULL,
    name      text NOT NULL COLLATE "C",
    -- When all shards of the first map were known to have it. Until then making the
    -- cluster may have been interrupted, and goes on; after it, a shard without a row
    -- has lost its data.
    formed_at timestamptz
);

-- What this shard knows of the map: which shard holds each partition. The revision
-- counts the moves of the partition; among all shards, the entry with the greatest
-- revision is true. An entry of a partition that was split names no shard.
CREATE TABLE badged.shard_partitions (
    partition_id smallint PRIMARY KEY,
    shard        text   NOT NULL COLLATE "C",
    revision     bigint NOT NULL CHECK (revision > 0),
    -- When this copy of the map got the entry: on the shard that holds the partition, when
    -- it began to. All that its log had before on another shard has come with it.
    since        timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Returns the partitions that have users, null if none was split. A shard knows those of
-- its cluster as far as its copy of the map does.
CREATE FUNCTION badged.living_partitions() RETURNS smallint[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

-- Columns of fixed width come first, the widest ahead, so that no row is padded.
-- There are no CHECK constraints: Postgres prepares them for each statement, which
-- doubles the time of updating a row. The fold keeps what they would say, and
-- badged verify finds rows that differ.
CREATE TABLE badged.users (
    -- 0 if apps have claimed a read before the user's first event.
    version                bigint   NOT NULL,
    total                  bigint   NOT NULL,
    mentions               bigint   NOT NULL,
    -- What the rooms that the user has left add to the version that clients see; null
    -- for a user who was never a member of a room. See badged.rooms.
    carried                bigint,
    -- How many of the ordinary conversations add something to total.
    unread_conversations   integer NOT NULL DEFAULT 0,
    partition_id           smallint NOT NULL,
    user_id                text     NOT NULL COLLATE "C",
    -- The numbers of each category that has any, and of those above it: arrays of total,
    -- unread conversations, mentions, how much of the total is seen, total and conversations
    -- that are muted, and how much of the total is only marked; zeros at the end are left out.
    -- The level of the category may follow. Empty if path_rows is not null.
    categories             jsonb    NOT NULL,
    -- Of the badge what is seen, muted total, muted conversations and what is only marked;
    -- null for most users: all are 0.
    extra                  jsonb,
    -- How many rows of badged.paths the user has; null while categories has them.
    path_rows              bigint,
    -- What the user's apps said that they have read and was not delivered yet,
    -- oldest first; null for nothing.
    claims                 jsonb
) PARTITION BY LIST (partition_id);

CREATE TYPE badged.level AS ENUM ('default', 'all', 'mentions', 'direct_mentions', 'none');

-- The categories of users with many: see users.categories. An event changes the rows of its
-- own category and of those above it.
CREATE TABLE badged.paths (
    partition_id smallint NOT NULL,
    user_id      text     NOT NULL COLLATE "C",
    category     text     NOT NULL COLLATE "C",
    -- As in users.categories, without the level.
    numbers      jsonb    NOT NULL,
    level        badged.level
) PARTITION BY LIST (partition_id);

CREATE INDEX paths_levels ON badged.paths (user_id) WHERE level IS NOT NULL;

-- Whether a category covers another. Go and TypeScript have the same rule.
CREATE FUNCTION badged.covers(path text, category text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN category = path OR starts_with(category, path || '/');

-- Returns all categories that cover one.
CREATE FUNCTION badged.paths_of(category text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY(
        SELECT array_to_string((string_to_array(category, '/'))[1:n], '/') FROM generate_series(1, cardinality(string_to_array(category, '/'))) AS n
    );

-- Returns the level that applies to a conversation: its own, or else that of the longest
-- category that covers its own, of a JSON object, or else all.
CREATE FUNCTION badged.closest_level(own badged.level, category text, levels jsonb) RETURNS badged.level
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN own <> 'default' THEN own WHEN levels IS NULL THEN 'all' ELSE coalesce(
        (SELECT l.value FROM jsonb_each_text(levels) AS l WHERE badged.covers(l.key, category) ORDER BY length(l.key) DESC LIMIT 1)::badged.level,
        'all') END;

-- A conversation of a user is ordinary, and then its row has all its numbers, or it
-- is the user's membership of a room, and then they follow from the row and from
-- the row of the room.
CREATE TABLE badged.conversations (
    -- The user's version as of the last change that a client can see; for a
    -- membership, as of the last that is not of the whole room.
    version         bigint   NOT NULL,
    read_seq        bigint   NOT NULL,
    -- The seen position; null unless it is above the read position.
    seen_seq        bigint,
    -- Of a membership: while messages are marked unread, read_seq is below the first of
    -- them, this is how far the user has read, and clients see it as the read position.
    -- Null otherwise.
    reached_seq        bigint,
    -- Not used for a membership: the room has it.
    last_seq        bigint   NOT NULL,
    -- Null for a user who has not left. The user is out while last_seq is not above
    -- it.
    left_seq        bigint,
    -- For a membership: changes of the room when the user joined. Null for an ordinary
    -- conversation.
    joined          bigint,
    -- For a membership: how many seqs own_set has.
    unread          bigint   NOT NULL,
    -- For a membership: how many seqs mention_set has, less those of own_all_set, which
    -- may be negative.
    mentions        bigint   NOT NULL,
    -- For a membership: how many seqs mention_set and named_all_set have; null for 0.
    named           bigint,
    level           badged.level NOT NULL,
    -- When the level ends, in microseconds since 1970, and the one that follows; null if
    -- it does not end.
    level_until     bigint,
    level_after     badged.level,
    -- Hours since 1970 (UTC) of the latest delivery or mark, as the log dates it; 0
    -- for none. By the hour, since a change of an indexed column writes to every
    -- index of the table.
    delivered_hour  integer  NOT NULL,
    partition_id    smallint NOT NULL,
    marked_unread   boolean  NOT NULL,
    user_id         text     NOT NULL COLLATE "C",
    conversation_id text     NOT NULL COLLATE "C",
    category        text     NOT NULL COLLATE "C",
    -- What unread, mentions and, for a membership, named are above the seen position; null if
    -- they are the same.
    unseen          bigint[],
    -- Delivered, not recalled, above read_seq; those of them that mention the user;
    -- and the recalled, delivered or not, of those below read_seq only the last. Each is encoded as
    -- projector/internal/badge/encode.go says, null for an empty set; badged verify
    -- and badged explain print them.
    unread_set      bytea,
    mention_set     bytea,
    recalled_set    bytea,
    -- Marked unread, at or below read_seq: they count again, and unread counts them too.
    again_set       bytea,
    -- Of a membership: the user's own messages in the room above read_seq, and those of
    -- them that mention everybody. mention_set has the messages above read_seq that
    -- mention the user by name, without the user's own and those that mention
    -- everybody; the other sets are null.
    own_set         bytea,
    own_all_set     bytea,
    -- Of a membership: the messages above read_seq that mention everybody and also the user
    -- by name, without the user's own.
    named_all_set   bytea,
    -- Of a membership: the last messages that the user sent, and those that mention the
    -- user by name, read or not. The least of sent_set is none, but the seq up to which
    -- messages may have been forgotten, or are from before the user joined.
    sent_set        bytea,
    named_set       bytea,
    -- The last messages that were changed, with the revisions, as
    -- projector/internal/badge/revisions.go says; null for none.
    revisions       bytea
) PARTITION BY LIST (partition_id);

-- For the expiry sweep. Over read and unread rows: whether a row is unread changes
-- with every message, so an index on unread rows would prevent HOT updates.
CREATE INDEX conversations_delivered_hour ON badged.conversations (category, delivered_hour);

-- For the sweep that ends levels. Few rows are in it.
CREATE INDEX conversations_level_until ON badged.conversations (level_until, conversation_id, user_id) WHERE level_until IS NOT NULL;

-- The memberships of a user, and the members of a room. No other row is in them.
CREATE INDEX conversations_memberships ON badged.conversations (user_id, conversation_id) WHERE joined IS NOT NULL;
CREATE INDEX conversations_members ON badged.conversations (conversation_id, user_id) WHERE joined IS NOT NULL;

-- The messages of a set of seqs, as columns of SQL: starts has where its ranges
-- start, in ascending order, and before the messages before each range, then all
-- of them. before is null if each range is one message, as where seqs are far apart.
-- Both are null if the set is empty. Arrays without the encoding of other
-- sets, since every read of a badge looks for ranks in them, with a binary search.

-- Returns how many messages of a set are at or below a seq. Postgres inlines it.
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

-- The rooms with members in a partition. A message to a room changes one row in each
-- partition, and none of its members'. So what is true of all members is here, for
-- the members of the partition.
--
-- The version of a user that clients see is users.version + users.carried + the sum
-- of changes - joined over the user's memberships.
CREATE TABLE badged.rooms (
    -- Grows by one with every event that changes what a member can see.
    changes         bigint   NOT NULL,
    last_seq        bigint   NOT NULL,
    -- The messages up to here are in badged.room_chunks, those above in this row; 0
    -- if there is no chunk.
    since           bigint   NOT NULL,
    -- How many live messages the chunks have, and how many that mention everybody.
    closed_live     bigint   NOT NULL,
    closed_all      bigint   NOT NULL,
    -- Grows by one with every event that changes one of these messages.
    closed_changes  bigint   NOT NULL,
    members         bigint   NOT NULL,
    -- As in badged.conversations.
    delivered_hour  integer  NOT NULL,
    partition_id    smallint NOT NULL,
    conversation_id text     NOT NULL COLLATE "C",
    category        text     NOT NULL COLLATE "C",
    -- The messages that are not recalled, and those of them that mention everybody.
    live_starts     bigint[],
    live_before     bigint[],
    all_starts      bigint[],
    all_before      bigint[],
    -- The recalled messages, posted or not, encoded as other sets.
    recalled_set    bytea,
    -- The keys of the last events that reset the room, 16 bytes each; null for none.
    resets          bytea,
    -- As in badged.conversations.
    revisions       bytea
) PARTITION BY LIST (partition_id);

-- For the expiry sweep, as of conversations.
CREATE INDEX rooms_delivered_hour ON badged.rooms (category, delivered_hour);

-- Older messages of rooms with gaps between their seqs. A chunk has the messages
-- above the bound of the chunk before, up to its own bound.
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

-- The members who sent a message of a room or are mentioned in it by name, while
-- the message is above their read position: recalling it changes their memberships.
-- A row may outlive that.
CREATE TABLE badged.room_marks (
    seq             bigint   NOT NULL,
    partition_id    smallint NOT NULL,
    -- Whether the user is the sender.
    own             boolean  NOT NULL,
    conversation_id text     NOT NULL COLLATE "C",
    user_id         text     NOT NULL COLLATE "C"
) PARTITION BY LIST (partition_id);

-- Conversations of a category that were last delivered to before swept_hour have
-- been examined, and expired if unread. Without a row none has.
CREATE TABLE badged.expiry_progress (
    partition_id smallint NOT NULL,
    category     text     NOT NULL COLLATE "C",
    swept_hour   integer  NOT NULL CHECK (swept_hour >= 0),
    PRIMARY KEY (partition_id, category)
);

-- Which users have had which events is remembered in generations. A generation
-- holds the events behind its position in the log, up to where the next begins.
-- These rows stay when what was remembered is gone: they say how every repetition
-- in the log was decided.
CREATE TABLE badged.dedup_generations (
    partition_id   smallint    NOT NULL,
    generation     integer     NOT NULL CHECK (generation > 0),
    transaction_id xid8        NOT NULL,
    "offset"       bigint      NOT NULL,
    begun_at       timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, generation)
);

-- Each batch adds what it remembers to the blocks of its partition, unsorted rows
-- in dedup_blocks_pNN. Blocks are merged to runs in the order of their keys, and
-- runs to larger ones. The pages of a run are in dedup_pages_pNN.
CREATE TABLE badged.dedup_runs (
    partition_id smallint NOT NULL,
    -- When it was begun, in microseconds since 1970.
    run          bigint   NOT NULL,
    generation   integer  NOT NULL,
    -- Events, each counted once for each of its users.
    entries      bigint   NOT NULL DEFAULT 0,
    -- Pages and filters of dropped runs, and of those that nothing builds any more,
    -- are being deleted.
    state        text     NOT NULL CHECK (state IN ('building', 'live', 'dropped')),
    PRIMARY KEY (partition_id, run)
);

-- Tells for most keys that the pages of a run from one on, up to the next filter,
-- do not have them. Owners keep filters in memory.
CREATE TABLE badged.dedup_filters (
    partition_id smallint NOT NULL,
    run          bigint   NOT NULL,
    first        bigint   NOT NULL,
    entries      bigint   NOT NULL,
    filter       bytea    NOT NULL,
    PRIMARY KEY (partition_id, run, first)
);
-- Random bytes do not compress.
ALTER TABLE badged.dedup_filters ALTER COLUMN filter SET STORAGE EXTERNAL;

-- Users whose rows were wrong and have been replayed from the log. A healed user
-- has a version above all that clients may hold, which the log alone does not
-- give: a replay adds the difference.
CREATE TABLE badged.healed_users (
    partition_id smallint    NOT NULL,
    user_id      text        NOT NULL COLLATE "C",
    -- What the user and its conversations got when they were last healed.
    version      bigint      NOT NULL CHECK (version > 0),
    -- How far the user's versions are ahead of those that the log gives.
    ahead        bigint      NOT NULL CHECK (ahead BETWEEN 0 AND version),
    healed_at    timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (partition_id, user_id)
);

-- When events were folded, if that was more than a second after they were
-- appended. Each row ends a run of events of a partition, which were folded at a
-- time or, if that is null, within a second. Events behind the last row were in
-- time.
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

-- How far each partition was folded when its timeline of Postgres ended, which a promotion
-- or a point-in-time recovery does. What was folded then has survived. Numbers of
-- transactions are those of this cluster of Postgres, and mean nothing in a copy.
CREATE TABLE badged.timeline_ends (
    partition      smallint    NOT NULL,
    -- The timeline that ended, and the one that followed it.
    timeline       bigint      NOT NULL,
    next_timeline  bigint      NOT NULL,
    transaction_id bigint      NOT NULL,
    -- Transactions up to that one whose events were not folded.
    pending        bigint[]    NOT NULL,
    noticed_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, timeline),
    CHECK (next_timeline > timeline)
);

-- Creates the table of a partition of one that has the rows of all. It keeps no reader or
-- writer of the others waiting, as CREATE TABLE … PARTITION OF would.
CREATE FUNCTION badged.create_part(kind text, partition integer, constraints text, options text) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
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
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    blocks CONSTANT text := badged.partition_table('dedup_blocks', partition);
    pages  CONSTANT text := badged.partition_table('dedup_pages', partition);
BEGIN
    -- Counters are updated far more often than rows are added: room in each page
    -- keeps those updates off the indexes.
    PERFORM badged.create_part('users', partition, 'PRIMARY KEY (user_id)', 'WITH (fillfactor = 80)');
    PERFORM badged.create_part('conversations', partition, 'PRIMARY KEY (user_id, conversation_id)', 'WITH (fillfactor = 75)');
    PERFORM badged.create_part('paths', partition, 'PRIMARY KEY (user_id, category)', 'WITH (fillfactor = 75)');
    -- A row with arrays stays in its page.
    PERFORM badged.create_part('rooms', partition, 'PRIMARY KEY (conversation_id)', 'WITH (fillfactor = 50, toast_tuple_target = 8160)');
    PERFORM badged.create_part('room_chunks', partition, 'PRIMARY KEY (conversation_id, bound) INCLUDE (live, mentions_all, partition_id)', 'WITH (toast_tuple_target = 8160)');
    PERFORM badged.create_part('room_marks', partition, 'PRIMARY KEY (conversation_id, seq, user_id)', '');

    -- Without an index: blocks are only read all at once. They stay in the table up
    -- to the size of a page.
    EXECUTE format('CREATE TABLE badged.%I (generation integer NOT NULL, entries bytea NOT NULL) WITH (toast_tuple_target = 8160)', blocks);
    -- Without a key, Postgres would refuse deletes where a publication has all tables.
    EXECUTE format('ALTER TABLE badged.%I REPLICA IDENTITY FULL, ALTER COLUMN entries SET STORAGE EXTERNAL', blocks);
    EXECUTE format($f$
        CREATE TABLE badged.%I (
            run     bigint NOT NULL,
            -- The first eight bytes of its first key, the first bit inverted, which
            -- gives a bigint the order of the bytes.
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

-- The statements of a batch call these functions only to fail: they set no
-- search_path, and use nothing that depends on it. Statements that are sent in one
-- round trip stop at the first that fails.

-- Raises an error of class BD, which Postgres leaves to its users.
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

-- Returns the transactions that are pending once the position is at the
-- transaction own: of the former ones, and of those above the former position,
-- which were open in a snapshot of own. The snapshot lists the open ones below its
-- xmax, the last that has completed plus one; any from there up to own may be open
-- too.
--
-- The three parts have no id in common, and each is below the next. In PL/pgSQL a
-- session plans them once.
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
