-- Messages of rooms that were marked unread.

-- +goose Up
SELECT badged.wait_for_batches();

-- Of a membership. While messages are marked unread, read_seq is below the first of
-- them, seen_seq is how far the user has read, and clients see it as the read position.
-- Null otherwise. sent_set and named_set are encoded as the other sets. They have the
-- last messages that the user sent, and those that mention the user by name, read or
-- not. The least of sent_set is none, but the seq up to which messages may have been
-- forgotten, or are from before the user joined. named_all_set has the messages above
-- read_seq that mention everybody and also the user by name, without the user's own.
ALTER TABLE badged.conversations ADD COLUMN seen_seq bigint, ADD COLUMN sent_set bytea, ADD COLUMN named_set bytea, ADD COLUMN named_all_set bytea;

-- Baselines, and what an archiving or a rebuild that was interrupted has left.
-- +goose StatementBegin
DO $$
DECLARE
    name text;
    suffix text;
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        name := badged.partition_table('conversations', p);
        FOREACH suffix IN ARRAY '{_baseline,_baseline_next,_staging}'::text[] LOOP
            EXECUTE format('ALTER TABLE IF EXISTS badged.%I ADD COLUMN seen_seq bigint, ADD COLUMN sent_set bytea, ADD COLUMN named_set bytea, ADD COLUMN named_all_set bytea', name || suffix);
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

CREATE OR REPLACE VIEW badged.unread AS
SELECT c.partition_id, c.user_id, c.conversation_id, n.unread, n.mentions,
    -- To the total.
    CASE c.level WHEN 'none' THEN 0 WHEN 'all' THEN greatest(n.unread, c.marked_unread::integer) ELSE n.mentions END AS adds,
    greatest(c.read_seq, c.seen_seq) AS read_seq, coalesce(r.last_seq, c.last_seq) AS last_seq, c.level, coalesce(r.category, c.category) AS category, c.marked_unread,
    c.joined IS NOT NULL AS is_room,
    timestamptz 'epoch' + c.level_until * interval '1 microsecond' AS level_until
FROM badged.conversations AS c
LEFT JOIN badged.rooms AS r ON r.partition_id = c.partition_id AND r.conversation_id = CASE WHEN c.joined IS NOT NULL THEN c.conversation_id END
CROSS JOIN LATERAL (
    -- In the closed chunks above the read position; all but the first of them count
    -- in full.
    SELECT coalesce(sum(badged.above(c.read_seq, k.live_starts, k.live_before)), 0)::bigint AS live,
        coalesce(sum(badged.above(c.read_seq, k.all_starts, k.all_before)), 0)::bigint AS mentions_all
    FROM badged.room_chunks AS k
    WHERE k.partition_id = c.partition_id AND k.conversation_id = CASE WHEN c.read_seq < r.since THEN c.conversation_id END AND k.bound > c.read_seq
) AS closed
CROSS JOIN LATERAL (
    SELECT CASE WHEN c.joined IS NULL THEN c.unread
            ELSE greatest(0, badged.above(c.read_seq, r.live_starts, r.live_before) + closed.live - c.unread) END AS unread,
        CASE WHEN c.joined IS NULL OR c.level = 'direct_mentions' THEN c.mentions
            ELSE greatest(0, badged.above(c.read_seq, r.all_starts, r.all_before) + closed.mentions_all + c.mentions) END AS mentions
) AS n
WHERE (c.left_seq IS NULL OR c.left_seq < c.last_seq) AND c.version > 0;
