-- What is left of many users, rooms, revocations, dead letters and events, as copies of the
-- rows of the user "template". REVOCATIONS, LETTERS, EVENTS and RANGES are how many. The
-- users are numbered from FIRST to LAST.

-- name: users
INSERT INTO badged.users
SELECT r.* FROM badged.users AS u, (SELECT 'year-' || i AS id FROM generate_series(FIRST, LAST) AS i) AS c,
    jsonb_populate_record(u, jsonb_build_object('user_id', c.id, 'partition_id', badged.partition_of(c.id))) AS r
WHERE u.user_id = 'template'

-- name: conversations
-- Every user is the only member of a room.
INSERT INTO badged.conversations
SELECT r.* FROM (SELECT 'year-' || i AS id FROM generate_series(FIRST, LAST) AS i) AS c, badged.conversations AS o,
    jsonb_populate_record(o, jsonb_build_object('user_id', c.id, 'partition_id', badged.partition_of(c.id),
        'conversation_id', CASE WHEN o.joined IS NULL THEN o.conversation_id ELSE 'room of ' || c.id END)) AS r
WHERE o.user_id = 'template'

-- name: rooms
INSERT INTO badged.rooms
SELECT n.* FROM badged.rooms AS o, (SELECT 'year-' || i AS id FROM generate_series(FIRST, LAST) AS i) AS c,
    jsonb_populate_record(o, jsonb_build_object('partition_id', badged.partition_of(c.id), 'conversation_id', 'room of ' || c.id)) AS n
WHERE o.conversation_id = 'template'

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

-- name: ranges
-- Of one transaction id each, before the first range. Complete ranges have an index.
DO $$
BEGIN
    ALTER TABLE badged.events_pNN DETACH PARTITION badged.events_pNN_r1;
    ALTER TABLE badged.events_pNN ATTACH PARTITION badged.events_pNN_r1 FOR VALUES FROM ('100') TO (MAXVALUE);
    FOR k IN 1 .. RANGES LOOP
        PERFORM badged.create_log_range(NUMBER, k - RANGES, CASE k WHEN 1 THEN 'MINVALUE' ELSE quote_literal(k + 3) END, CASE k WHEN RANGES THEN quote_literal(100) ELSE quote_literal(k + 4) END);
        INSERT INTO badged.log_ranges (partition_id, number, starts, ends, made_id)
        VALUES (NUMBER, k - RANGES, (CASE k WHEN 1 THEN 0 ELSE k + 3 END)::text::xid8, (CASE k WHEN RANGES THEN 100 ELSE k + 4 END)::text::xid8, '3');
    END LOOP;
    UPDATE badged.log_ranges SET starts = '100' WHERE partition_id = NUMBER AND number = 1;
END
$$

-- name: events
-- These events come before all others, so they count as folded. Each names a user of its
-- partition, but not the template, whose tables are compared with the log.
WITH named AS (
    SELECT user_id, row_number() OVER () - 1 AS number, count(*) OVER () AS users FROM badged.users_pNN WHERE user_id <> 'template'
), template AS (
    SELECT * FROM badged.events_p00_r1 WHERE position('"first-'::bytea IN payload) > 0 LIMIT 1
)
INSERT INTO badged.events_pNN (transaction_id, "offset", created_at, uuid, own, events, payload, metadata)
SELECT (4 + i % RANGES)::text::xid8, i, now() - interval '1 hour', overlay(gen_random_uuid()::text PLACING '8' FROM 15)::uuid, e.own, e.events,
    convert_to(regexp_replace(replace(convert_from(e.payload, 'UTF8'), '"year-', '"event ' || i || ' '), '"first-\d+"', '"' || u.user_id || '"'), 'UTF8'), e.metadata
FROM template AS e, generate_series(1, EVENTS) AS i, (SELECT max(users) AS users FROM named) AS all_users, named AS u
WHERE u.number = i % all_users.users

-- name: index
SELECT badged.index_log(NUMBER) FROM generate_series(1, RANGES)

-- name: analyze
VACUUM (ANALYZE)
