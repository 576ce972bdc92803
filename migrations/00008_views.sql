-- +goose Up
-- +goose StatementBegin
-- Views for readers in SQL. They have the numbers that clients see, for ordinary conversations
-- and rooms alike. With the condition partition_id = badged.partition_of(user_id) a query reads
-- only one partition.

-- The levels that users have set for categories.
CREATE VIEW badged.levels AS
SELECT u.partition_id, u.user_id, l.key AS category, (l.value ->> 7)::badged.level AS level
FROM badged.users AS u CROSS JOIN LATERAL jsonb_each(u.categories) AS l
WHERE jsonb_array_length(l.value) = 8
UNION ALL
SELECT p.partition_id, p.user_id, p.category, p.level FROM badged.paths AS p WHERE p.level IS NOT NULL;

-- The conversations of users, except conversations that a user has left. own_level is the level
-- set for the conversation itself, and level is the level that applies.
CREATE VIEW badged.unread AS
SELECT c.partition_id, c.user_id, c.conversation_id, n.unread, n.mentions, n.unseen,
    -- What the conversation adds to the total, and what the level excludes from it.
    CASE n.level WHEN 'none' THEN 0 WHEN 'all' THEN n.full ELSE n.mentions END AS adds,
    CASE n.level WHEN 'none' THEN n.full WHEN 'all' THEN 0 ELSE n.full - n.mentions END AS muted,
    greatest(c.read_seq, c.reached_seq) AS read_seq, greatest(c.read_seq, c.reached_seq, c.seen_seq) AS seen_seq,
    coalesce(r.last_seq, c.last_seq) AS last_seq, n.level, c.level AS own_level, coalesce(r.category, c.category) AS category, c.marked_unread,
    c.joined IS NOT NULL AS is_room,
    timestamptz 'epoch' + c.level_until * interval '1 microsecond' AS level_until
FROM badged.conversations AS c
LEFT JOIN badged.rooms AS r ON r.partition_id = c.partition_id AND r.conversation_id = CASE WHEN c.joined IS NOT NULL THEN c.conversation_id END
CROSS JOIN LATERAL (
    SELECT greatest(c.read_seq, c.reached_seq, c.seen_seq) AS seen, badged.closest_level(c.level, coalesce(r.category, c.category), (
        SELECT jsonb_object_agg(l.category, l.level) FROM badged.levels AS l WHERE l.partition_id = c.partition_id AND l.user_id = c.user_id
    )) AS level
    OFFSET 0
) AS p
CROSS JOIN LATERAL (
    -- Counts in the older messages of a room, which are in room_chunks: above the read position,
    -- and above the seen position. Only chunks with a bound above the read position count.
    SELECT coalesce(sum(badged.above(c.read_seq, k.live_starts, k.live_before)), 0)::bigint AS live,
        coalesce(sum(badged.above(c.read_seq, k.all_starts, k.all_before)), 0)::bigint AS mentions_all,
        coalesce(sum(badged.above(p.seen, k.live_starts, k.live_before)), 0)::bigint AS unseen_live,
        coalesce(sum(badged.above(p.seen, k.all_starts, k.all_before)), 0)::bigint AS unseen_all
    FROM badged.room_chunks AS k
    WHERE k.partition_id = c.partition_id AND k.conversation_id = CASE WHEN c.read_seq < r.since THEN c.conversation_id END AND k.bound > c.read_seq
) AS closed
CROSS JOIN LATERAL (
    SELECT p.level,
        CASE WHEN c.joined IS NULL THEN c.unread
            ELSE greatest(0, badged.above(c.read_seq, r.live_starts, r.live_before) + closed.live - c.unread) END AS unread,
        CASE WHEN c.joined IS NULL THEN c.mentions WHEN p.level = 'direct_mentions' THEN coalesce(c.named, 0)
            ELSE greatest(0, badged.above(c.read_seq, r.all_starts, r.all_before) + closed.mentions_all + c.mentions) END AS mentions
    OFFSET 0
) AS m
CROSS JOIN LATERAL (
    SELECT m.*, greatest(m.unread, c.marked_unread::integer) AS full,
        -- How much of what the conversation adds is not seen.
        CASE
            WHEN m.level = 'none' THEN 0
            WHEN c.unseen IS NULL THEN CASE m.level WHEN 'all' THEN m.unread ELSE m.mentions END
            WHEN m.level = 'all' THEN CASE WHEN c.joined IS NULL THEN c.unseen[1]
                ELSE greatest(0, badged.above(p.seen, r.live_starts, r.live_before) + closed.unseen_live - c.unseen[1]) END
            WHEN c.joined IS NULL THEN c.unseen[2]
            WHEN m.level = 'direct_mentions' THEN c.unseen[3]
            ELSE greatest(0, badged.above(p.seen, r.all_starts, r.all_before) + closed.unseen_all + c.unseen[2])
        END AS unseen
) AS n
WHERE (c.left_seq IS NULL OR c.left_seq < c.last_seq) AND c.version > 0;

-- The numbers of users by category, for each category with numbers and the categories above it.
CREATE VIEW badged.categories AS
WITH parts AS (
    SELECT u.partition_id, u.user_id, p.category, p.numbers
    FROM badged.users AS u
    CROSS JOIN LATERAL (
        SELECT i.key AS category, i.value AS numbers FROM jsonb_each(u.categories) AS i
        UNION ALL
        SELECT p.category, p.numbers FROM badged.paths AS p
        WHERE u.path_rows IS NOT NULL AND p.partition_id = u.partition_id AND p.user_id = u.user_id
    ) AS p
), numbers AS (
    SELECT p.partition_id, p.user_id, p.category, coalesce((p.numbers ->> 0)::bigint, 0) AS total, coalesce((p.numbers ->> 2)::bigint, 0) AS mentions,
        coalesce((p.numbers ->> 1)::bigint, 0) AS unread_conversations, coalesce((p.numbers ->> 0)::bigint - coalesce((p.numbers ->> 3)::bigint, 0), 0) AS unseen,
        coalesce((p.numbers ->> 4)::bigint, 0) AS muted_total, coalesce((p.numbers ->> 5)::bigint, 0) AS muted_conversations, coalesce((p.numbers ->> 6)::bigint, 0) AS marked
    FROM parts AS p
    UNION ALL
    SELECT c.partition_id, c.user_id, p.category, c.adds, CASE c.level WHEN 'none' THEN 0 ELSE c.mentions END, (c.adds > 0)::integer, c.unseen,
        c.muted, (c.muted > 0)::integer, CASE WHEN c.unread = 0 THEN c.adds ELSE 0 END
    FROM badged.unread AS c CROSS JOIN LATERAL unnest(badged.paths_of(c.category)) AS p (category)
    WHERE c.is_room
)
SELECT partition_id, user_id, category, sum(total)::bigint AS total, sum(mentions)::bigint AS mentions, sum(unread_conversations)::bigint AS unread_conversations,
    sum(unseen)::bigint AS unseen, sum(muted_total)::bigint AS muted_total, sum(muted_conversations)::bigint AS muted_conversations, sum(marked)::bigint AS marked
FROM numbers
GROUP BY partition_id, user_id, category
HAVING sum(total) > 0 OR sum(muted_total) > 0 OR sum(mentions) > 0;

-- The badges of users.
CREATE VIEW badged.badges AS
SELECT u.partition_id, u.user_id, p.epoch,
    u.version + coalesce(u.carried, 0) + coalesce(m.changes, 0) AS version,
    u.total + coalesce(m.total, 0) AS total,
    u.mentions + coalesce(m.mentions, 0) AS mentions,
    u.unread_conversations + coalesce(m.conversations, 0) AS unread_conversations,
    u.total - coalesce((u.extra ->> 0)::bigint, 0) + coalesce(m.unseen, 0) AS unseen,
    coalesce((u.extra ->> 1)::bigint, 0) + coalesce(m.muted, 0) AS muted_total,
    coalesce((u.extra ->> 2)::bigint, 0) + coalesce(m.muted_conversations, 0) AS muted_conversations,
    coalesce((u.extra ->> 3)::bigint, 0) + coalesce(m.marked, 0) AS marked
FROM badged.users AS u
JOIN badged.partitions AS p USING (partition_id)
CROSS JOIN LATERAL (
    SELECT sum(r.changes - c.joined)::bigint AS changes, sum(n.adds)::bigint AS total,
        (sum(n.mentions) FILTER (WHERE n.level <> 'none'))::bigint AS mentions,
        count(*) FILTER (WHERE n.adds > 0) AS conversations, sum(n.unseen)::bigint AS unseen,
        sum(n.muted)::bigint AS muted, count(*) FILTER (WHERE n.muted > 0) AS muted_conversations,
        (sum(n.adds) FILTER (WHERE n.unread = 0))::bigint AS marked
    FROM badged.conversations AS c
    JOIN badged.rooms AS r USING (partition_id, conversation_id)
    JOIN badged.unread AS n USING (partition_id, user_id, conversation_id)
    WHERE c.partition_id = u.partition_id AND c.user_id = u.user_id AND c.joined IS NOT NULL
) AS m;
-- +goose StatementEnd
