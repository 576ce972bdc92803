-- Reads of badges, each in one statement and so in one snapshot. pNN stands for a
-- partition; reads of many partitions leave it out.
--
-- Most users have no memberships of rooms. The first statement about a user tells
-- whether there are any, and only then does one that knows rooms follow, and its
-- answer counts: beginning to execute it takes longer than the first in all. It is
-- right about every user, so a reader that knows a member leaves the first out.
--
-- k is a user, u the row of the user, c a row of badged.conversations, and r the
-- room of a membership.

-- name: badge
p.epoch, coalesce(u.version + coalesce(u.carried, 0), 0), coalesce(u.total, 0), coalesce(u.mentions, 0), coalesce(u.categories::text, '{}'),
    coalesce(u.unread_conversations, 0), u.category_conversations::text

-- name: is member
-- Or has been one. It must not look at conversations: a badge can be read while
-- something locks them.
u.carried IS NOT NULL AS is_member

-- name: closed
-- What the closed chunks of the room have above the read position: messages, and
-- those of them that mention everybody.
SELECT ARRAY[
    above.live - badged.rank(c.read_seq, k.live_starts, k.live_before),
    above.mentions_all - badged.rank(c.read_seq, k.all_starts, k.all_before)
]
FROM (
    SELECT sum(live)::bigint AS live, sum(mentions_all)::bigint AS mentions_all, min(bound) AS bound
    FROM badged.room_chunks_pNN
    WHERE partition_id = c.partition_id AND conversation_id = c.conversation_id AND bound > c.read_seq
) AS above
JOIN badged.room_chunks_pNN AS k
  ON k.partition_id = c.partition_id AND k.conversation_id = c.conversation_id AND k.bound = above.bound

-- name: unread
-- Most members have read everything.
CASE WHEN c.joined IS NULL THEN c.unread WHEN c.read_seq >= r.last_seq THEN 0 ELSE greatest(0,
    badged.above(c.read_seq, r.live_starts, r.live_before) - c.unread
    + CASE WHEN c.read_seq < r.since THEN ({closed})[1] ELSE 0 END) END

-- name: mentions
-- Few rooms have messages that mention everybody.
CASE WHEN c.joined IS NULL OR c.level = 'direct_mentions' THEN c.mentions WHEN r.all_starts IS NULL AND c.read_seq >= r.since THEN greatest(0, c.mentions) ELSE greatest(0,
    badged.above(c.read_seq, r.all_starts, r.all_before) + c.mentions
    + CASE WHEN c.read_seq < r.since THEN ({closed})[2] ELSE 0 END) END

-- name: memberships
-- OFFSET 0 keeps each room a lookup by its key: before the tables are analyzed, a plan may
-- read all rooms for each user.
badged.conversations_pNN AS c
CROSS JOIN LATERAL (SELECT * FROM badged.rooms_pNN AS r WHERE r.partition_id = c.partition_id AND r.conversation_id = c.conversation_id OFFSET 0) AS r
WHERE c.partition_id = k.partition_id AND c.user_id = k.user_id AND c.joined IS NOT NULL

-- name: numbers
-- Those of each membership. OFFSET 0 makes Postgres compute each once, not wherever
-- it is used.
SELECT r.changes - c.joined AS changes, r.category, c.level, c.marked_unread, {unread} AS unread, {mentions} AS mentions
FROM {memberships}
OFFSET 0

-- name: adds
CASE n.level WHEN 'none' THEN 0 WHEN 'all' THEN greatest(n.unread, n.marked_unread::integer) ELSE n.mentions END

-- name: sums
-- What the memberships add to the badge: to the total those of the default category
-- in one number, with how many add something, and each of the others with its category.
CROSS JOIN LATERAL (
    SELECT coalesce(sum(n.changes), 0)::bigint AS changes,
        coalesce(sum(n.mentions) FILTER (WHERE n.level <> 'none'), 0)::bigint AS mentions,
        coalesce(sum({adds}) FILTER (WHERE n.category = 'chat'), 0)::bigint AS chat,
        count(*) FILTER (WHERE n.category = 'chat' AND {adds} > 0) AS chats,
        array_agg(n.category) FILTER (WHERE n.category <> 'chat') AS categories,
        array_agg({adds}) FILTER (WHERE n.category <> 'chat') AS adds
    FROM ({numbers}) AS n
) AS m

-- name: badge of a member
p.epoch, coalesce(u.version + coalesce(u.carried, 0) + m.changes, 0), coalesce(u.total, 0), coalesce(u.mentions, 0) + m.mentions,
    coalesce(u.categories::text, '{}'), coalesce(u.unread_conversations, 0), u.category_conversations::text,
    m.chat, m.chats, m.categories, m.adds

-- name: user
FROM (SELECT $1::text AS user_id, $2::smallint AS partition_id) AS k
JOIN badged.partitions AS p USING (partition_id)
LEFT JOIN badged.users_pNN AS u USING (user_id)

-- name: read a badge
SELECT {badge}, {is member}
{user}

-- name: read the badge of a member
SELECT {badge of a member}
{user} {sums}

-- name: users by partition
FROM unnest($1::text[], $2::smallint[]) WITH ORDINALITY AS k (user_id, partition_id, ord)
JOIN badged.partitions AS p USING (partition_id)
LEFT JOIN badged.users_pNN AS u ON u.partition_id = k.partition_id AND u.user_id = k.user_id

-- name: read badges
SELECT {badge}, {is member}
{users by partition}
ORDER BY k.ord

-- name: read versions
-- Without the totals by category.
SELECT p.epoch, coalesce(u.version + coalesce(u.carried, 0), 0), coalesce(u.total, 0), coalesce(u.mentions, 0), '{}',
    coalesce(u.unread_conversations, 0), NULL, {is member}
{users by partition}
ORDER BY k.ord

-- name: read the badges of members
SELECT {badge of a member}
{users by partition} {sums}
ORDER BY k.ord

-- name: has left
-- True of conversations that are hidden from every list.
(c.left_seq IS NOT NULL AND c.left_seq >= c.last_seq)

-- name: is anything
-- True of conversations that differ from a new one.
(c.last_seq > 0 OR c.read_seq > 0 OR c.marked_unread OR c.level <> 'all' OR c.level_until IS NOT NULL OR c.joined IS NOT NULL)

-- name: shows anything
-- True of conversations that a client must know: they have something unread, or
-- a level other than the default or with an end.
((c.unread > 0 OR c.marked_unread OR c.level <> 'all' OR c.level_until IS NOT NULL) AND NOT {has left})

-- name: conversation
-- Of the set with the first unread message, what badge.FirstOf needs: messages that
-- count again are below all others. Sets can be large and lie outside of their rows.
-- So where only the first conversations are returned, c must be the result of a query
-- with the limit: columns that are computed beside it are computed for all.
c.conversation_id, c.unread, c.mentions, substr(coalesce(c.again_set, c.unread_set), 1, 64), c.read_seq, c.last_seq,
    c.level::text, coalesce(c.level_until, 0), c.category, c.marked_unread, {has left} AND c.version > 0, c.version

-- name: held states
unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k (user_id, epoch, version, ord)
JOIN badged.partitions AS p ON p.partition_id = $4
LEFT JOIN badged.users_pNN AS u ON u.user_id = k.user_id

-- name: read states
-- First the badge of each user, then, except for members, its conversations, in rows
-- without the badge: that of a user with many categories is large. MOST stands for a
-- number: with a parameter, a generic plan would expect to read a tenth of the
-- conversations.
SELECT k.ord, w.is_member, w.whole, coalesce(u.carried, 0), s.*
FROM {held states}
CROSS JOIN LATERAL (
    SELECT k.epoch <> p.epoch OR k.version > coalesce(u.version + coalesce(u.carried, 0), 0) AS whole,
        {is member}
    OFFSET 0
) AS w
CROSS JOIN LATERAL (
    SELECT {badge}, NULL AS conversation_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL AS version
    UNION ALL (
        SELECT p.epoch, 0, 0, 0, NULL, 0, NULL, {conversation}
        FROM (
            SELECT c.*
            FROM badged.conversations_pNN AS c
            WHERE NOT w.is_member AND c.user_id = k.user_id
              AND CASE WHEN w.whole THEN {shows anything} ELSE c.version > greatest(k.version - coalesce(u.carried, 0), 0) END
            ORDER BY c.version DESC, c.conversation_id
            LIMIT MOST
        ) AS c
    )
) AS s
ORDER BY k.ord, s.version DESC, s.conversation_id -- nulls first

-- name: closed ranges
-- The first ranges above the read position in closed chunks, as starts and sizes: one
-- more than the user's own messages can fill.
SELECT ARRAY[array_agg(f.start), array_agg(f.size)]
FROM (
    SELECT f.start, coalesce(k.live_before[f.i + 1] - k.live_before[f.i], 1) AS size
    FROM badged.room_chunks_pNN AS k CROSS JOIN LATERAL unnest(k.live_starts) WITH ORDINALITY AS f (start, i)
    WHERE k.conversation_id = c.conversation_id AND k.bound > c.read_seq
      AND f.start - 1 + coalesce(k.live_before[f.i + 1] - k.live_before[f.i], 1) > c.read_seq -- the greatest seq may be read
    ORDER BY k.bound, f.i
    LIMIT c.unread + 1
) AS f

-- name: membership
-- What gives its numbers, together with the room.
ROW(c.conversation_id, c.version, c.joined, c.read_seq, coalesce(c.seen_seq, 0), c.level::text, coalesce(c.level_until, 0), c.marked_unread, c.mentions, c.own_set,
    CASE WHEN c.read_seq < r.since THEN ({closed}) END, CASE WHEN c.read_seq < r.since THEN ({closed ranges}) END)

-- name: room
ROW(r.conversation_id, r.changes, r.last_seq, r.category, r.since, r.live_starts, r.live_before, r.all_starts, r.all_before,
    r.closed_live, r.closed_all, r.closed_changes)

-- name: rows of states
-- Users and their memberships.
WITH m AS MATERIALIZED (
    SELECT k.ord, c.conversation_id, r.changes - c.joined AS changes, {membership} AS fields
    FROM unnest($1::text[]) WITH ORDINALITY AS k (user_id, ord)
    JOIN badged.conversations_pNN AS c ON c.user_id = k.user_id AND c.joined IS NOT NULL
    JOIN badged.rooms_pNN AS r ON r.conversation_id = c.conversation_id
), s AS MATERIALIZED (
    SELECT ord, sum(changes)::bigint AS changes FROM m GROUP BY ord
), w AS MATERIALIZED (
    SELECT k.ord, k.user_id, w.whole, greatest(k.version - w.ahead, 0) AS since, ROW(w.whole, coalesce(u.carried, 0), w.ahead, {badge}) AS fields
    FROM {held states}
    LEFT JOIN s ON s.ord = k.ord
    CROSS JOIN LATERAL (SELECT coalesce(u.carried, 0) + coalesce(s.changes, 0) AS ahead) AS a
    CROSS JOIN LATERAL (SELECT a.ahead, k.epoch <> p.epoch OR k.version > coalesce(u.version + a.ahead, 0) AS whole) AS w
)
SELECT 0, ord, fields FROM w
UNION ALL
SELECT 1, ord, fields FROM m

-- name: read the states of members
-- Rows of four kinds: users, their memberships, those of their other conversations
-- that they are told, and the rooms of the memberships, each once.
{rows of states}
UNION ALL
SELECT 2, w.ord, ROW({conversation})
FROM w CROSS JOIN LATERAL (
    SELECT c.*
    FROM badged.conversations_pNN AS c
    WHERE c.user_id = w.user_id AND c.joined IS NULL AND CASE WHEN w.whole THEN {shows anything} ELSE c.version > w.since END
    ORDER BY c.version DESC, c.conversation_id
    LIMIT MOST
) AS c
UNION ALL
SELECT 3, 0, {room} FROM badged.rooms_pNN AS r WHERE r.conversation_id IN (SELECT conversation_id FROM m)

-- name: read a view
-- The whole state of a user, whether a member or not, with the conversations of some
-- categories, $5, and in rows of a fifth kind what each of those adds to the mentions.
{rows of states}
UNION ALL
SELECT 2, w.ord, ROW({conversation})
FROM w CROSS JOIN LATERAL (
    SELECT c.*
    FROM badged.conversations_pNN AS c
    WHERE c.user_id = w.user_id AND c.joined IS NULL AND c.category = ANY ($5::text[]) AND {shows anything}
    ORDER BY c.version DESC, c.conversation_id
    LIMIT MOST
) AS c
UNION ALL
SELECT 4, w.ord, ROW(c.conversation_id, c.mentions)
FROM w JOIN badged.conversations_pNN AS c ON c.user_id = w.user_id AND c.joined IS NULL
    AND c.category = ANY ($5::text[]) AND c.mentions > 0 AND c.level <> 'none'
UNION ALL
SELECT 3, 0, {room} FROM badged.rooms_pNN AS r WHERE r.conversation_id IN (SELECT conversation_id FROM m)

-- name: conversations of the user
-- For a member only whether the user is one. A condition follows.
SELECT w.is_member, coalesce(u.carried, 0), c.*
FROM (SELECT $1::text AS user_id, $2::smallint AS partition_id) AS k
LEFT JOIN badged.users_pNN AS u USING (user_id)
CROSS JOIN LATERAL (SELECT {is member} OFFSET 0) AS w
LEFT JOIN LATERAL (
    SELECT {conversation} FROM (SELECT c.* FROM badged.conversations_pNN AS c WHERE NOT w.is_member AND c.user_id = k.user_id

-- name: before the cursor
c.version > 0 AND (c.version < $3 OR c.version = $3 AND c.conversation_id > $4) AND NOT {has left} AND {is anything}

-- name: in the categories
-- Those are all if $6 is null.
($6::text[] IS NULL OR c.category = ANY ($6))

-- name: in the categories of a member
-- A room has that of its last message.
($6::text[] IS NULL OR coalesce(r.category, c.category) = ANY ($6))

-- name: page
ORDER BY c.version DESC, c.conversation_id
LIMIT $5

-- name: read a page
{conversations of the user} AND {before the cursor} AND {in the categories}
{page}) AS c) AS c ON true

-- name: read an unread page
{conversations of the user} AND {before the cursor} AND {in the categories} AND (c.unread > 0 OR c.marked_unread)
{page}) AS c) AS c ON true

-- name: read a conversation
{conversations of the user} AND c.conversation_id = $3) AS c) AS c ON true

-- name: rows of a member
-- A condition follows.
WITH c AS MATERIALIZED (
    SELECT c.*
    FROM badged.conversations_pNN AS c
    LEFT JOIN badged.rooms_pNN AS r ON r.conversation_id = CASE WHEN c.joined IS NOT NULL THEN c.conversation_id END
    WHERE c.user_id = $1

-- name: conversations of the member
-- Rows as in the states of members.
)
SELECT 0, 1, ROW(true, coalesce(u.carried, 0), coalesce(u.carried, 0) + m.changes, {badge})
{user} CROSS JOIN LATERAL (SELECT coalesce(sum(r.changes - c.joined), 0)::bigint AS changes FROM {memberships}) AS m
UNION ALL
SELECT 1, 1, {membership} FROM c JOIN badged.rooms_pNN AS r ON r.conversation_id = c.conversation_id WHERE c.joined IS NOT NULL
UNION ALL
SELECT 2, 1, ROW({conversation}) FROM c WHERE c.joined IS NULL
UNION ALL
SELECT 3, 0, {room} FROM c JOIN badged.rooms_pNN AS r ON r.conversation_id = c.conversation_id WHERE c.joined IS NOT NULL

-- name: read a page of a member
{rows of a member} AND {before the cursor} AND {in the categories of a member}
{page}{conversations of the member}

-- name: read an unread page of a member
{rows of a member} AND {before the cursor} AND {in the categories of a member} AND ({unread} > 0 OR c.marked_unread)
{page}{conversations of the member}

-- name: read a conversation of a member
{rows of a member} AND c.conversation_id = $3{conversations of the member}

-- name: is a member of a room
SELECT EXISTS (SELECT FROM badged.conversations_pNN WHERE user_id = $1 AND conversation_id = $2 AND joined IS NOT NULL)

-- name: timeline
-- Of Postgres. Only a primary tells it.
('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint

-- name: read the head
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1, {timeline}

-- name: look up an ended timeline
-- Whether transaction $2 of timeline $1 is known to have survived its end, and whether
-- each of the partitions $3 has been owned since and would know.
SELECT EXISTS (SELECT FROM badged.timeline_ends
               WHERE timeline <= $1 AND next_timeline > $1 AND transaction_id >= $2 AND $2 <> ALL (pending)),
       NOT EXISTS (SELECT FROM badged.partitions
                   WHERE partition_id = ANY ($3::int[]) AND ('x' || left(incarnation, 8))::bit(32)::bigint IS DISTINCT FROM {timeline})

-- name: read stored
-- Conversations of users with their messages. OFFSET 0 keeps each a lookup by its key,
-- however many are asked for.
SELECT k.ord, c.*
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (user_id, conversation_id, ord)
CROSS JOIN LATERAL (
    SELECT c.joined IS NOT NULL AS is_member, {conversation}, c.unread_set, c.mention_set
    FROM badged.conversations_pNN AS c
    WHERE c.user_id = k.user_id AND c.conversation_id = k.conversation_id
    OFFSET 0
) AS c

-- name: read messages
-- Whether a message of a room is above the read position and posted, and the sets that
-- tell the rest. A message up to r.since is in the first chunk that ends behind it.
SELECT k.ord, c.level::text, c.joined IS NOT NULL,
    coalesce(k.seq > c.read_seq AND CASE WHEN k.seq <= r.since
        THEN (SELECT badged.rank(k.seq, h.live_starts, h.live_before) > badged.rank(k.seq - 1, h.live_starts, h.live_before)
              FROM badged.room_chunks_pNN AS h
              WHERE h.conversation_id = c.conversation_id AND h.bound >= k.seq ORDER BY h.bound LIMIT 1)
        ELSE badged.rank(k.seq, r.live_starts, r.live_before) > badged.rank(k.seq - 1, r.live_starts, r.live_before) END, false),
    CASE WHEN c.joined IS NULL THEN c.unread_set END, c.own_set
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k (user_id, conversation_id, seq, ord)
JOIN badged.conversations_pNN AS c ON c.user_id = k.user_id AND c.conversation_id = k.conversation_id
LEFT JOIN badged.rooms_pNN AS r ON r.conversation_id = CASE WHEN c.joined IS NOT NULL THEN c.conversation_id END

-- name: is a partition held
SELECT EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1)
