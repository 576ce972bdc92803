-- What is left of many users, rooms, revocations, dead letters and events, as copies of the
-- rows of the user "template". USERS, REVOCATIONS, LETTERS and EVENTS are how many.

-- name: users
INSERT INTO badged.users
SELECT (jsonb_populate_record(u, jsonb_build_object('user_id', c.id, 'partition_id', badged.partition_of(c.id)))).*
FROM badged.users AS u, (SELECT 'year-' || i AS id FROM generate_series(1, USERS) AS i) AS c
WHERE u.user_id = 'template'

-- name: conversations
-- Every user is the only member of a room.
INSERT INTO badged.conversations
SELECT (jsonb_populate_record(o, jsonb_build_object('user_id', c.id, 'partition_id', badged.partition_of(c.id),
    'conversation_id', CASE WHEN o.joined IS NULL THEN o.conversation_id ELSE 'room of ' || c.id END))).*
FROM (SELECT 'year-' || i AS id FROM generate_series(1, USERS) AS i) AS c, badged.conversations AS o
WHERE o.user_id = 'template'

-- name: rooms
INSERT INTO badged.rooms
SELECT (jsonb_populate_record(r, jsonb_build_object('partition_id', badged.partition_of(c.id), 'conversation_id', 'room of ' || c.id))).*
FROM badged.rooms AS r, (SELECT 'year-' || i AS id FROM generate_series(1, USERS) AS i) AS c
WHERE r.conversation_id = 'template'

-- name: revocations
WITH added AS (
    INSERT INTO badged.revocations (seq, revoked_before, ended_at, user_id)
    SELECT i, now() - interval '1 hour', now() - interval '1 hour', 'revoked-' || i FROM generate_series(1, REVOCATIONS) AS i
)
UPDATE badged.revocation_counter SET last = greatest(last, REVOCATIONS)

-- name: letters
INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", index, uuid, payload, reason, user_ids)
SELECT l.partition_id, l.transaction_id, l."offset" + i, l.index, gen_random_uuid(), l.payload, l.reason, ARRAY['year-' || i]
FROM badged.dead_letters AS l, generate_series(1, LETTERS) AS i

-- name: events
-- They are before all others, and so are folded.
INSERT INTO badged.events_pNN (transaction_id, "offset", created_at, uuid, own, events, payload, metadata)
SELECT '3', i, now() - interval '1 hour', gen_random_uuid(), e.own, e.events, e.payload, e.metadata
FROM (SELECT * FROM badged.TEMPLATE LIMIT 1) AS e, generate_series(1, EVENTS) AS i

-- name: analyze
VACUUM (ANALYZE)
