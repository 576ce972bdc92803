-- The number of conversations with something unread, beside the total.

-- +goose Up
SELECT badged.wait_for_batches();

-- How many of the ordinary conversations add something to total.
ALTER TABLE badged.users ADD COLUMN unread_conversations integer NOT NULL DEFAULT 0;
-- The same by category, with the keys of categories. Null for most users: those with at
-- most one category, to which all belong.
ALTER TABLE badged.users ADD COLUMN category_conversations jsonb;

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        -- Baselines, and what an archiving or a rebuild that was interrupted has left.
        name := badged.partition_table('users', p);
        EXECUTE format('ALTER TABLE badged.%I ADD COLUMN unread_conversations integer NOT NULL DEFAULT 0, ADD COLUMN category_conversations jsonb', name || '_baseline');
        EXECUTE format('ALTER TABLE IF EXISTS badged.%I ADD COLUMN unread_conversations integer NOT NULL DEFAULT 0, ADD COLUMN category_conversations jsonb', name || '_baseline_next');
        EXECUTE format('ALTER TABLE IF EXISTS badged.%I ADD COLUMN unread_conversations integer NOT NULL DEFAULT 0, ADD COLUMN category_conversations jsonb', name || '_staging');

        -- As folded, while every owner has counted conversations. An owner of an earlier
        -- release moves only folded: then the next owner that counts them begins by
        -- counting all.
        EXECUTE format('ALTER TABLE badged.%I ADD COLUMN counted bigint NOT NULL DEFAULT 0', badged.log_table(p) || '_offsets');
    END LOOP;
END
$$;
-- +goose StatementEnd

CREATE OR REPLACE VIEW badged.badges AS
SELECT u.partition_id, u.user_id, p.epoch,
    u.version + coalesce(u.carried, 0) + coalesce(m.changes, 0) AS version,
    u.total + coalesce(m.total, 0) AS total,
    u.mentions + coalesce(m.mentions, 0) AS mentions,
    CASE WHEN m.changes IS NULL THEN u.categories ELSE (
        SELECT coalesce(jsonb_object_agg(category, adds), '{}')
        FROM (
            SELECT category, sum(adds)::bigint AS adds
            FROM (
                SELECT key AS category, value::bigint AS adds FROM jsonb_each_text(u.categories)
                UNION ALL
                SELECT c.category, c.adds FROM badged.unread AS c WHERE c.partition_id = u.partition_id AND c.user_id = u.user_id AND c.is_room
            ) AS parts
            GROUP BY category HAVING sum(adds) <> 0
        ) AS totals
    ) END AS categories,
    u.unread_conversations + coalesce(m.conversations, 0) AS unread_conversations,
    (
        SELECT coalesce(jsonb_object_agg(category, conversations), '{}')
        FROM (
            SELECT category, sum(conversations)::bigint AS conversations
            FROM (
                SELECT key AS category, coalesce((u.category_conversations ->> key)::bigint, u.unread_conversations) AS conversations
                FROM jsonb_object_keys(u.categories) AS key
                UNION ALL
                SELECT c.category, 1 FROM badged.unread AS c
                WHERE m.changes IS NOT NULL AND c.partition_id = u.partition_id AND c.user_id = u.user_id AND c.is_room AND c.adds > 0
            ) AS parts
            GROUP BY category
        ) AS counts
    ) AS category_conversations
FROM badged.users AS u
JOIN badged.partitions AS p USING (partition_id)
CROSS JOIN LATERAL (
    SELECT sum(r.changes - c.joined)::bigint AS changes, sum(n.adds)::bigint AS total,
        (sum(n.mentions) FILTER (WHERE n.level <> 'none'))::bigint AS mentions,
        count(*) FILTER (WHERE n.adds > 0) AS conversations
    FROM badged.conversations AS c
    JOIN badged.rooms AS r USING (partition_id, conversation_id)
    JOIN badged.unread AS n USING (partition_id, user_id, conversation_id)
    WHERE c.partition_id = u.partition_id AND c.user_id = u.user_id AND c.joined IS NOT NULL
) AS m;
