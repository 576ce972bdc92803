-- Reads of badges, each in one statement and so in one snapshot.

-- name: badge
p.epoch, coalesce(u.version, 0), coalesce(u.total, 0), coalesce(u.mentions, 0), coalesce(u.categories::text, '{}')

-- name: has left
-- True of conversations that are hidden from every list.
(left_seq IS NOT NULL AND left_seq >= last_seq)

-- name: is anything
-- True of conversations that differ from a new one.
(last_seq > 0 OR read_seq > 0 OR marked_unread OR level <> 'all')

-- name: shows anything
-- True of conversations that a client must know: they have something unread or
-- a level other than the default.
((unread > 0 OR marked_unread OR level <> 'all') AND NOT {has left})

-- name: conversation
-- Of the unread set, what badge.FirstOf needs.
conversation_id, unread, mentions, substr(unread_set, 1, 64), read_seq, last_seq,
    level::text, category, marked_unread,
    {has left} AND {is anything} AS has_left, version

-- name: read a badge
SELECT {badge}
FROM badged.partitions AS p LEFT JOIN badged.users_pNN AS u ON u.user_id = $1
WHERE p.partition_id = $2

-- name: users by partition
FROM unnest($1::text[], $2::smallint[]) WITH ORDINALITY AS k (user_id, partition_id, ord)
JOIN badged.partitions AS p USING (partition_id)
LEFT JOIN badged.users AS u ON u.partition_id = k.partition_id AND u.user_id = k.user_id
ORDER BY k.ord

-- name: read badges
SELECT k.user_id, {badge}
{users by partition}

-- name: read versions
SELECT k.user_id, p.epoch, coalesce(u.version, 0), coalesce(u.total, 0), coalesce(u.mentions, 0)
{users by partition}

-- name: read states
-- MOST stands for a number: with a parameter, a generic plan would expect to
-- read a tenth of the conversations.
SELECT k.ord, w.whole, {badge}, c.*
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k (user_id, epoch, version, ord)
JOIN badged.partitions AS p ON p.partition_id = $4
LEFT JOIN badged.users_pNN AS u ON u.user_id = k.user_id
CROSS JOIN LATERAL (SELECT k.epoch <> p.epoch OR k.version > coalesce(u.version, 0) AS whole) AS w
LEFT JOIN LATERAL (
    SELECT {conversation}
    FROM badged.conversations_pNN
    WHERE user_id = k.user_id AND CASE WHEN w.whole THEN {shows anything} ELSE version > k.version END
    ORDER BY version DESC, conversation_id
    LIMIT MOST
) AS c ON true
ORDER BY k.ord, c.version DESC, c.conversation_id

-- name: before the cursor
user_id = $1 AND version > 0 AND (version < $2 OR version = $2 AND conversation_id > $3) AND NOT {has left} AND {is anything}

-- name: read a page
SELECT {conversation}
FROM badged.conversations_pNN
WHERE {before the cursor}
ORDER BY version DESC, conversation_id
LIMIT $4

-- name: read an unread page
SELECT {conversation}
FROM badged.conversations_pNN
WHERE {before the cursor} AND (unread > 0 OR marked_unread)
ORDER BY version DESC, conversation_id
LIMIT $4

-- name: read a conversation
SELECT {conversation} FROM badged.conversations_pNN WHERE user_id = $1 AND conversation_id = $2

-- name: read the head
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1
