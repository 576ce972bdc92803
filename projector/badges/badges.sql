-- Statements that read badges. Each read is one statement and so uses one snapshot. pNN is
-- replaced by the number of a partition; for reads of several partitions, it is removed.
--
-- Most users have no memberships of rooms. So the first statement about a user does not read
-- rooms. It returns whether the user has memberships; if so, a second statement runs, which
-- also reads rooms, and its result replaces the first result. The second statement takes
-- longer just to start than the whole first statement. It is correct for every user, so if a
-- reader knows that a user is a member, it runs only the second statement.
--
-- In all statements, k is a requested user, u the row of the user, c a row of
-- badged.conversations, and r the room of a membership.

-- name: rows of paths
-- The paths of a user whose paths have rows: the first FIRSTPATHS paths by name, and the paths
-- in the array ALSO. A path may be returned twice. The result has type json, since building
-- jsonb takes five times as long.
(
    SELECT json_object_agg(p.category, p.numbers)
    FROM (
        (
            SELECT p.category, p.numbers FROM badged.paths_pNN AS p
            WHERE p.partition_id = u.partition_id AND p.user_id = u.user_id AND p.numbers <> '[]'
            ORDER BY p.category
            LIMIT FIRSTPATHS
        )
        UNION ALL
        SELECT p.category, p.numbers FROM badged.paths_pNN AS p
        WHERE p.partition_id = u.partition_id AND p.user_id = u.user_id AND p.category = ANY (ALSO)
    ) AS p
)

-- name: rows of levels
(SELECT jsonb_object_agg(p.category, p.level) FROM badged.paths_pNN AS p WHERE p.partition_id = u.partition_id AND p.user_id = u.user_id AND p.level IS NOT NULL)

-- name: levels
-- The levels of categories as a JSON object, null for none.
CASE WHEN u.path_rows IS NOT NULL THEN {rows of levels} ELSE (
    SELECT jsonb_object_agg(l.key, l.value -> 7) FROM jsonb_each(u.categories) AS l WHERE jsonb_array_length(l.value) = 8
) END

-- name: paths of rooms
ARRAY(
    SELECT unnest(badged.paths_of(r.category))
    FROM (
        SELECT DISTINCT r.category
        FROM badged.conversations_pNN AS c
        JOIN badged.rooms_pNN AS r ON r.partition_id = c.partition_id AND r.conversation_id = c.conversation_id
        WHERE c.partition_id = u.partition_id AND c.user_id = u.user_id AND c.joined IS NOT NULL
    ) AS r
)

-- name: paths of a view
-- The paths of rooms, and the paths that the categories $5 cover.
{paths of rooms} || ARRAY(
    SELECT p.category FROM badged.paths_pNN AS p
    WHERE p.partition_id = u.partition_id AND p.user_id = u.user_id AND EXISTS (SELECT FROM unnest($5::text[]) AS path WHERE badged.covers(path, p.category))
)

-- name: paths of sums
-- The paths of the rooms that add something to the badge.
ARRAY(SELECT unnest(badged.paths_of(g.category)) FROM unnest(m.categories) AS g (category))

-- name: paths
-- For a user with rows of paths, the paths and the levels are in separate columns.
CASE WHEN u.path_rows IS NULL THEN coalesce(u.categories::text, '{}') ELSE coalesce({rows of paths}::text, '{}') END,
    coalesce(u.unread_conversations, 0), u.extra::text, CASE WHEN u.path_rows IS NOT NULL THEN {rows of levels}::text END

-- name: badge
p.epoch, coalesce(u.version + coalesce(u.carried, 0), 0), coalesce(u.total, 0), coalesce(u.mentions, 0), {paths}

-- name: is member
-- True if the user is or was a member of a room. This expression must not read conversations,
-- so that a badge can be read while another session locks them.
u.carried IS NOT NULL AS is_member

-- name: closed
-- Counts the messages above the read position in the closed chunks of the room: all messages,
-- and the messages that mention everybody.
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

-- name: seen position
greatest(c.read_seq, c.reached_seq, c.seen_seq)

-- name: closed unseen
-- Like closed, but above the seen position.
SELECT ARRAY[
    above.live - badged.rank({seen position}, k.live_starts, k.live_before),
    above.mentions_all - badged.rank({seen position}, k.all_starts, k.all_before)
]
FROM (
    SELECT sum(live)::bigint AS live, sum(mentions_all)::bigint AS mentions_all, min(bound) AS bound
    FROM badged.room_chunks_pNN
    WHERE partition_id = c.partition_id AND conversation_id = c.conversation_id AND bound > {seen position}
) AS above
JOIN badged.room_chunks_pNN AS k
  ON k.partition_id = c.partition_id AND k.conversation_id = c.conversation_id AND k.bound = above.bound

-- name: unread
-- The second case saves time: most members have read everything.
CASE WHEN c.joined IS NULL THEN c.unread WHEN c.read_seq >= r.last_seq THEN 0 ELSE greatest(0,
    badged.above(c.read_seq, r.live_starts, r.live_before) - c.unread
    + CASE WHEN c.read_seq < r.since THEN ({closed})[1] ELSE 0 END) END

-- name: mentions
-- The second case saves time: few rooms have messages that mention everybody.
CASE WHEN c.joined IS NULL THEN c.mentions WHEN r.all_starts IS NULL AND c.read_seq >= r.since THEN greatest(0, c.mentions) ELSE greatest(0,
    badged.above(c.read_seq, r.all_starts, r.all_before) + c.mentions
    + CASE WHEN c.read_seq < r.since THEN ({closed})[2] ELSE 0 END) END

-- name: memberships
-- OFFSET 0 forces a look-up by key for each room: before the tables are analyzed, the planner
-- might otherwise read all rooms for each user.
badged.conversations_pNN AS c
CROSS JOIN LATERAL (SELECT * FROM badged.rooms_pNN AS r WHERE r.partition_id = c.partition_id AND r.conversation_id = c.conversation_id OFFSET 0) AS r
WHERE c.partition_id = k.partition_id AND c.user_id = k.user_id AND c.joined IS NOT NULL

-- name: numbers
-- The numbers of each membership. The last three are null if all unread messages are unseen.
-- OFFSET 0 makes Postgres compute each number once, instead of at each use.
SELECT r.changes - c.joined AS changes, r.category, c.level, c.marked_unread, {unread} AS unread, {mentions} AS mentions, coalesce(c.named, 0) AS named,
    CASE WHEN c.unseen IS NOT NULL THEN greatest(0,
        badged.above({seen position}, r.live_starts, r.live_before) - c.unseen[1]
        + CASE WHEN {seen position} < r.since THEN ({closed unseen})[1] ELSE 0 END) END AS unseen,
    CASE WHEN c.unseen IS NOT NULL THEN greatest(0,
        badged.above({seen position}, r.all_starts, r.all_before) + c.unseen[2]
        + CASE WHEN {seen position} < r.since THEN ({closed unseen})[2] ELSE 0 END) END AS unseen_mentions,
    c.unseen[3] AS unseen_named
FROM {memberships}
OFFSET 0

-- name: sums
-- The numbers that memberships add to the badge, by category and own level: see the type
-- memberships in reader.go.
CROSS JOIN LATERAL (
    SELECT coalesce(sum(g.changes), 0)::bigint AS changes,
        array_agg(g.category) FILTER (WHERE g.counts[1] > 0) AS categories,
        array_agg(g.level::text) FILTER (WHERE g.counts[1] > 0) AS levels,
        array_agg(g.counts) FILTER (WHERE g.counts[1] > 0) AS counts
    FROM (
        SELECT n.category, n.level, sum(n.changes) AS changes, ARRAY[
            sum(n.full), sum(n.mentions), sum(coalesce(n.unseen, n.unread)), sum(coalesce(n.unseen_mentions, n.mentions)),
            count(*) FILTER (WHERE n.full > 0), count(*) FILTER (WHERE n.mentions > 0), count(*) FILTER (WHERE n.full > n.mentions), coalesce(sum(n.full) FILTER (WHERE n.unread = 0), 0),
            sum(n.named), sum(coalesce(n.unseen_named, n.named)), count(*) FILTER (WHERE n.named > 0), count(*) FILTER (WHERE n.full > n.named)
        ]::bigint[] AS counts
        FROM (SELECT n.*, greatest(n.unread, n.marked_unread::integer) AS full FROM ({numbers}) AS n) AS n
        GROUP BY n.category, n.level
    ) AS g
) AS m

-- name: badge of a member
p.epoch, coalesce(u.version + coalesce(u.carried, 0) + m.changes, 0), coalesce(u.total, 0), coalesce(u.mentions, 0), {paths},
    m.categories, m.levels, m.counts

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
-- The badges without the totals by category.
SELECT p.epoch, coalesce(u.version + coalesce(u.carried, 0), 0), coalesce(u.total, 0), coalesce(u.mentions, 0), '{}',
    coalesce(u.unread_conversations, 0), u.extra::text, NULL, {is member}
{users by partition}
ORDER BY k.ord

-- name: read the badges of members
SELECT {badge of a member}
{users by partition} {sums}
ORDER BY k.ord

-- name: has left
-- True for conversations that are hidden from every list.
(c.left_seq IS NOT NULL AND c.left_seq >= c.last_seq)

-- name: is anything
-- True for conversations whose state differs from a new conversation.
(c.last_seq > 0 OR c.read_seq > 0 OR c.marked_unread OR c.level <> 'default' OR c.level_until IS NOT NULL OR c.joined IS NOT NULL)

-- name: shows anything
-- True for conversations that a client must know, since they have something unread or a level
-- of their own.
((c.unread > 0 OR c.marked_unread OR c.level <> 'default' OR c.level_until IS NOT NULL) AND NOT {has left})

-- name: conversation
-- Of the set that has the first unread message, the statement returns only the start, since
-- badge.FirstOf needs no more. This set is again_set if it is not null: messages marked unread
-- have lower seqs than all other unread messages. Sets can be large and stored outside their
-- rows. So if a limit omits conversations, c must be a subquery with the limit; then Postgres
-- does not read the sets of omitted conversations.
c.conversation_id, c.unread, c.mentions, substr(coalesce(c.again_set, c.unread_set), 1, 64), c.read_seq, c.last_seq,
    c.level::text, coalesce(c.level_until, 0), c.category, c.marked_unread, {has left} AND c.version > 0, coalesce(c.seen_seq, 0),
    coalesce(c.unread - c.unseen[1], 0), coalesce(c.mentions - c.unseen[2], 0), c.version

-- name: held states
unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k (user_id, epoch, version, ord)
JOIN badged.partitions AS p ON p.partition_id = $4
LEFT JOIN badged.users_pNN AS u ON u.user_id = k.user_id

-- name: read states
-- Returns for each user a row with the badge, then a row for each conversation. For members,
-- it returns no conversations. Rows of conversations do not repeat the badge, which is large
-- if the user has many categories. MOST is replaced by a number. With a parameter instead, a
-- generic plan would expect to read a tenth of the conversations.
SELECT k.ord, w.is_member, w.whole, coalesce(u.carried, 0), s.*
FROM {held states}
CROSS JOIN LATERAL (
    SELECT k.epoch <> p.epoch OR k.version > coalesce(u.version + coalesce(u.carried, 0), 0) AS whole,
        {is member}
    OFFSET 0
) AS w
CROSS JOIN LATERAL (
    SELECT {badge}, NULL AS conversation_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL AS version
    UNION ALL (
        SELECT p.epoch, 0, 0, 0, NULL, 0, NULL, NULL, {conversation}
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
-- The first ranges of messages above the read position in closed chunks, as starts and sizes:
-- one range more than the user's own messages can fill.
SELECT ARRAY[array_agg(f.start), array_agg(f.size)]
FROM (
    SELECT f.start, coalesce(k.live_before[f.i + 1] - k.live_before[f.i], 1) AS size
    FROM badged.room_chunks_pNN AS k CROSS JOIN LATERAL unnest(k.live_starts) WITH ORDINALITY AS f (start, i)
    WHERE k.conversation_id = c.conversation_id AND k.bound > c.read_seq
      AND f.start - 1 + coalesce(k.live_before[f.i + 1] - k.live_before[f.i], 1) > c.read_seq -- subtract first, since start + size could overflow
    ORDER BY k.bound, f.i
    LIMIT c.unread + 1
) AS f

-- name: membership
-- The fields of a membership. The reader computes its numbers from these fields and from the
-- fields of the room.
ROW(c.conversation_id, c.version, c.joined, c.read_seq, coalesce(c.reached_seq, 0), c.level::text, coalesce(c.level_until, 0), c.marked_unread, c.mentions, c.own_set,
    coalesce(c.named, 0), coalesce(c.seen_seq, 0), c.unseen, CASE WHEN c.unseen IS NOT NULL AND {seen position} < r.since THEN ({closed unseen}) END,
    CASE WHEN c.read_seq < r.since THEN ({closed}) END, CASE WHEN c.read_seq < r.since THEN ({closed ranges}) END)

-- name: room
ROW(r.conversation_id, r.changes, r.last_seq, r.category, r.since, r.live_starts, r.live_before, r.all_starts, r.all_before,
    r.closed_live, r.closed_all, r.closed_changes)

-- name: rows of states
-- Rows of users and of their memberships.
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
-- Returns rows of four kinds: users, their memberships, their other conversations that the
-- client must get, and the rooms of the memberships, each room once.
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

-- name: is covered
EXISTS (SELECT FROM unnest($5::text[]) AS path WHERE badged.covers(path, c.category))

-- name: read a view
-- Returns the whole state of a user, member or not, but only the conversations that the
-- categories $5 cover.
{rows of states}
UNION ALL
SELECT 2, w.ord, ROW({conversation})
FROM w CROSS JOIN LATERAL (
    SELECT c.*
    FROM badged.conversations_pNN AS c
    WHERE c.user_id = w.user_id AND c.joined IS NULL AND {is covered} AND {shows anything}
    ORDER BY c.version DESC, c.conversation_id
    LIMIT MOST
) AS c
UNION ALL
SELECT 3, 0, {room} FROM badged.rooms_pNN AS r WHERE r.conversation_id IN (SELECT conversation_id FROM m)

-- name: conversations of the user
-- If the user is a member of rooms, returns one row, which says so, and no conversations. The
-- caller appends a condition.
SELECT w.is_member, coalesce(u.carried, 0), c.*
FROM (SELECT $1::text AS user_id, $2::smallint AS partition_id) AS k
LEFT JOIN badged.users_pNN AS u USING (user_id)
CROSS JOIN LATERAL (SELECT {is member} OFFSET 0) AS w
LEFT JOIN LATERAL (
    SELECT {conversation} FROM (SELECT c.* FROM badged.conversations_pNN AS c WHERE NOT w.is_member AND c.user_id = k.user_id

-- name: before the cursor
c.version > 0 AND (c.version < $3 OR c.version = $3 AND c.conversation_id > $4) AND NOT {has left} AND {is anything}

-- name: filtered
-- Three filters. A filter applies unless its parameter is null. $6: at least one of these
-- categories must cover the conversation. $7: this category must cover the conversation. $8:
-- if true, the level must exclude something of the conversation from the total; if false, the
-- conversation must add to the total. CATEGORY, UNREAD, NAMED and MENTIONS are placeholders,
-- since a room has the category of its last message, and the numbers of a membership are
-- computed from the room.
($6::text[] IS NULL OR EXISTS (SELECT FROM unnest($6::text[]) AS path WHERE badged.covers(path, CATEGORY)))
    AND ($7::text IS NULL OR badged.covers($7, CATEGORY))
    AND ($8::boolean IS NULL OR CASE badged.closest_level(c.level, CATEGORY, (SELECT {levels} FROM badged.users_pNN AS u WHERE u.user_id = $1))
        WHEN 'all' THEN NOT $8 AND (UNREAD > 0 OR c.marked_unread)
        WHEN 'none' THEN $8 AND (UNREAD > 0 OR c.marked_unread)
        WHEN 'direct_mentions' THEN CASE WHEN $8 THEN greatest(UNREAD, c.marked_unread::integer) > NAMED ELSE NAMED > 0 END
        ELSE CASE WHEN $8 THEN greatest(UNREAD, c.marked_unread::integer) > MENTIONS ELSE MENTIONS > 0 END END)

-- name: page
ORDER BY c.version DESC, c.conversation_id
LIMIT $5

-- name: read a page
{conversations of the user} AND {before the cursor} AND {filtered}
{page}) AS c) AS c ON true

-- name: read an unread page
{conversations of the user} AND {before the cursor} AND {filtered} AND (c.unread > 0 OR c.marked_unread)
{page}) AS c) AS c ON true

-- name: read a conversation
{conversations of the user} AND c.conversation_id = $3) AS c) AS c ON true

-- name: rows of a member
-- The caller appends a condition.
WITH c AS MATERIALIZED (
    SELECT c.*
    FROM badged.conversations_pNN AS c
    LEFT JOIN badged.rooms_pNN AS r ON r.conversation_id = CASE WHEN c.joined IS NOT NULL THEN c.conversation_id END
    WHERE c.user_id = $1

-- name: conversations of the member
-- Returns rows in the form of the statement read the states of members.
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
{rows of a member} AND {before the cursor} AND {filtered}
{page}{conversations of the member}

-- name: read an unread page of a member
{rows of a member} AND {before the cursor} AND {filtered} AND ({unread} > 0 OR c.marked_unread)
{page}{conversations of the member}

-- name: read a conversation of a member
{rows of a member} AND c.conversation_id = $3{conversations of the member}

-- name: is a member of a room
SELECT EXISTS (SELECT FROM badged.conversations_pNN WHERE user_id = $1 AND conversation_id = $2 AND joined IS NOT NULL)

-- name: timeline
-- The present timeline of Postgres. Works on a primary only.
('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint

-- name: read the head
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1, {timeline}

-- name: look up an ended timeline
-- Returns two values. The first is whether transaction $2 of timeline $1 is known to have
-- survived the end of the timeline. The second is whether each of the partitions $3 has had an
-- owner since the present timeline began: such an owner would have recorded the survival.
SELECT EXISTS (SELECT FROM badged.timeline_ends
               WHERE timeline <= $1 AND next_timeline > $1 AND transaction_id >= $2 AND $2 <> ALL (pending)),
       NOT EXISTS (SELECT FROM badged.partitions
                   WHERE partition_id = ANY ($3::int[]) AND ('x' || left(incarnation, 8))::bit(32)::bigint IS DISTINCT FROM {timeline})

-- name: read stored
-- Returns conversations of users with their sets of messages. OFFSET 0 forces a look-up by key
-- for each conversation, however many are requested.
SELECT k.ord, c.*
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (user_id, conversation_id, ord)
CROSS JOIN LATERAL (
    SELECT c.joined IS NOT NULL AS is_member, {conversation}, c.unread_set, c.mention_set
    FROM badged.conversations_pNN AS c
    WHERE c.user_id = k.user_id AND c.conversation_id = k.conversation_id
    OFFSET 0
) AS c

-- name: read messages
-- Returns for each message whether it is posted in a room and above the read position, and the
-- sets that decide the rest. A message up to r.since belongs to the first chunk whose bound is
-- at or above it.
SELECT k.ord, badged.closest_level(c.level, coalesce(r.category, c.category), {levels})::text, c.joined IS NOT NULL,
    coalesce(k.seq > c.read_seq AND CASE WHEN k.seq <= r.since
        THEN (SELECT badged.rank(k.seq, h.live_starts, h.live_before) > badged.rank(k.seq - 1, h.live_starts, h.live_before)
              FROM badged.room_chunks_pNN AS h
              WHERE h.conversation_id = c.conversation_id AND h.bound >= k.seq ORDER BY h.bound LIMIT 1)
        ELSE badged.rank(k.seq, r.live_starts, r.live_before) > badged.rank(k.seq - 1, r.live_starts, r.live_before) END, false),
    CASE WHEN c.joined IS NULL THEN c.unread_set END, c.own_set
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k (user_id, conversation_id, seq, ord)
JOIN badged.conversations_pNN AS c ON c.user_id = k.user_id AND c.conversation_id = k.conversation_id
LEFT JOIN badged.users_pNN AS u ON u.user_id = k.user_id
LEFT JOIN badged.rooms_pNN AS r ON r.conversation_id = CASE WHEN c.joined IS NOT NULL THEN c.conversation_id END

-- name: is a partition held
SELECT EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1)
