-- Rebuilding tables, archiving the log, jobs, the audit trail, roles. No badge depends on them.

-- +goose Up
-- +goose StatementBegin
-- The partitions that an unfinished rebuild of all partitions has completed.
CREATE TABLE badged.rebuilt_partitions (
    partition_id    smallint    PRIMARY KEY,
    users           bigint      NOT NULL,
    conversations   bigint      NOT NULL,
    different_users bigint      NOT NULL
);

-- Returns the names, without the schema, of the tables of a partition that a rebuild replaces.
CREATE FUNCTION badged.state_tables(partition integer) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ARRAY(
        SELECT badged.partition_table(kind, partition)
        FROM unnest('{users,conversations,paths,rooms,room_chunks,room_marks}'::text[]) AS kind
    );

-- Collects planner statistics of newly filled tables of a partition, since autovacuum would come
-- later. The suffix is '_staging' for staging tables.
CREATE FUNCTION badged.analyze_tables(partition integer, suffix text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN badged.for_tables(
        ARRAY(SELECT t || suffix FROM unnest(badged.state_tables(partition)) AS t),
        'ANALYZE badged.%I');

-- Drops the tables that exist. It writes no notice about names without a table.
CREATE FUNCTION badged.drop_tables(names text[]) RETURNS void
    LANGUAGE sql
    RETURN badged.for_tables(
        ARRAY(SELECT t FROM unnest(names) AS t WHERE to_regclass(format('badged.%I', t)) IS NOT NULL),
        'DROP TABLE badged.%I');

CREATE FUNCTION badged.drop_staging_tables(partition integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN badged.drop_tables(
        ARRAY(SELECT t || '_staging' FROM unnest(badged.state_tables(partition)) AS t));

-- Creates empty tables like tables of a partition, with their settings and grants.
CREATE FUNCTION badged.create_tables_like(
    partition integer, names text[], suffix text, constraints text
) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    model   text;
    options text;
BEGIN
    IF partition NOT IN (SELECT badged.existing_partitions()) THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH model IN ARRAY names LOOP
        SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '') INTO options
        FROM pg_class WHERE oid = format('badged.%I', model)::regclass;
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING ALL%s) %s',
            model || suffix, model, constraints, options);
        PERFORM badged.copy_grants(model, model || suffix);
    END LOOP;
END
$$;

-- With the constraint, attaching the table later needs no scan.
CREATE FUNCTION badged.create_staging_tables(partition integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN badged.create_tables_like(partition, badged.state_tables(partition), '_staging',
        format(', CONSTRAINT of_partition CHECK (partition_id = %s)', partition));

-- Replaces the live tables of a partition by its staging tables. It blocks all readers of every
-- partition until the transaction ends, and locks tables in the order in which readers lock them.
-- Set lock_timeout: readers queue behind it while it waits.
CREATE FUNCTION badged.swap_staging_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    live    text;
    parent  text;
    names   jsonb;
    staged  record;
BEGIN
    FOREACH live IN ARRAY badged.state_tables(partition) LOOP
        EXECUTE format('LOCK TABLE ONLY badged.%I, badged.%I IN ACCESS EXCLUSIVE MODE',
            regexp_replace(live, '_p[0-9]+$', ''), live);
    END LOOP;
    FOREACH live IN ARRAY badged.state_tables(partition) LOOP
        parent := regexp_replace(live, '_p[0-9]+$', '');
        -- Each new index gets the name of the old index with the same definition.
        SELECT jsonb_object_agg(regexp_replace(pg_get_indexdef(c.oid), 'INDEX \S+ ON \S+ ', ''), c.relname) INTO names
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE i.indrelid = format('badged.%I', live)::regclass;
        EXECUTE format('DROP TABLE badged.%I', live);
        EXECUTE format('ALTER TABLE badged.%I RENAME TO %I', live || '_staging', live);
        FOR staged IN
            SELECT c.relname AS name, names ->> regexp_replace(pg_get_indexdef(c.oid), 'INDEX \S+ ON \S+ ', '') AS former
            FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
            WHERE i.indrelid = format('badged.%I', live)::regclass
        LOOP
            EXECUTE format('ALTER INDEX badged.%I RENAME TO %I', staged.name, staged.former);
        END LOOP;
        EXECUTE format('ALTER TABLE badged.%I ATTACH PARTITION badged.%I FOR VALUES IN (%s)', parent, live, partition);
        EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT of_partition', live);
    END LOOP;
END
$$;

-- Where the archive of a partition ends: replays begin behind this event, with the baseline.
CREATE TABLE badged.baselines (
    partition_id   smallint PRIMARY KEY,
    transaction_id xid8     NOT NULL,
    "offset"       bigint   NOT NULL,
    -- The generation of event keys that was current at this event, 0 for none.
    generation     integer  NOT NULL,
    -- How many events are archived, and when the latest archived event was appended.
    events         bigint   NOT NULL,
    appended_until timestamptz NOT NULL
);

-- The files of the archive, as its manifest lists them.
CREATE TABLE badged.archived_files (
    partition_id smallint    NOT NULL,
    number       integer     NOT NULL,
    range        integer     NOT NULL, -- the number in log_ranges
    events       bigint      NOT NULL,
    sha256       text        NOT NULL,
    -- The SHA-256 of the new file while the file is being replaced by one without an erased user;
    -- the manifest may list either file.
    next_sha256  text,
    -- How often the file was replaced, and the SHA-256 of the first file. By the origin, a database
    -- that is restored to an earlier revision recognizes the file that replaces its own.
    revision     integer     NOT NULL DEFAULT 0,
    origin       text,
    -- When an operator declared the file lost.
    given_up     timestamptz,
    PRIMARY KEY (partition_id, number)
);

-- The ids of completed erasures. If an erasure is in the archive but not here, it was interrupted,
-- or the database was restored to a time before it.
CREATE TABLE badged.erasures (id uuid PRIMARY KEY);

-- Each command that writes to the archive stores a new claim here and in the manifest. If the
-- manifest has a claim that is not here, a copy of this database has written to the archive, or
-- this database was restored to an earlier time.
CREATE TABLE badged.archive_claims (claim uuid PRIMARY KEY);

-- Returns the names, without the schema, of the tables of a partition's baseline: its users,
-- conversations and rooms after the archived events, and the event keys of that time.
CREATE FUNCTION badged.baseline_tables(partition integer) RETURNS text[]
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ARRAY(
        SELECT badged.partition_table(kind, partition) || '_baseline'
        FROM unnest('{users,conversations,paths,keys,rooms,room_chunks,room_marks}'::text[]) AS kind
    );

-- Creates the tables of a partition's baseline.
CREATE FUNCTION badged.create_baseline(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
AS $$
DECLARE
    keys CONSTANT text := badged.partition_table('keys', partition) || '_baseline';
    of   record;
BEGIN
    FOR of IN
        VALUES ('users', 'user_id'), ('conversations', 'user_id, conversation_id'), ('paths', 'user_id, category'),
            ('rooms', 'conversation_id'), ('room_chunks', 'conversation_id, bound'), ('room_marks', 'conversation_id, seq, user_id')
    LOOP
        EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (%s))',
            badged.partition_table(of.column1, partition) || '_baseline', of.column1, of.column2);
    END LOOP;
    EXECUTE format($f$
        CREATE TABLE badged.%I (
            key        uuid    NOT NULL,
            -- The users who have had the event: bytes 9 to 16 of the SHA-256 of each id.
            users      bytea   NOT NULL,
            generation integer NOT NULL,
            -- An event may come again for other users, in a later generation.
            PRIMARY KEY (key, generation)
        )$f$, keys);
    -- Random bytes do not compress.
    EXECUTE format('ALTER TABLE badged.%I ALTER COLUMN users SET STORAGE EXTERNAL', keys);
END
$$;

SELECT badged.create_baseline(partition_id) FROM badged.partitions;

CREATE FUNCTION badged.drop_baseline_tables(partition integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN badged.drop_tables(
        ARRAY(SELECT t || '_next' FROM unnest(badged.baseline_tables(partition)) AS t));

CREATE FUNCTION badged.create_baseline_tables(partition integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN badged.create_tables_like(partition, badged.baseline_tables(partition), '_next', '');

-- Replaces the baseline by the next one. It blocks replays until the end of the transaction. Set
-- lock_timeout.
CREATE FUNCTION badged.swap_baseline_tables(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    baseline text;
BEGIN
    PERFORM badged.for_tables(
        badged.baseline_tables(partition), 'LOCK TABLE badged.%I IN ACCESS EXCLUSIVE MODE');
    FOREACH baseline IN ARRAY badged.baseline_tables(partition) LOOP
        EXECUTE format('DROP TABLE badged.%I', baseline);
        EXECUTE format('ALTER TABLE badged.%I RENAME TO %I', baseline || '_next', baseline);
        EXECUTE format('ALTER TABLE badged.%I RENAME CONSTRAINT %I TO %I', baseline, baseline || '_next_pkey', baseline || '_pkey');
    END LOOP;
END
$$;

-- Drops the first ranges of a partition's log that are complete and have no event behind the
-- baseline, and returns how many. An empty range replaces them: events get such low transaction ids
-- if the log was restored into another Postgres cluster. Set lock_timeout.
CREATE FUNCTION badged.drop_log_ranges(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    -- Use the index even if a table was never analyzed, since other sessions wait.
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    log      text := badged.log_table(partition);
    horizon  xid8 := pg_snapshot_xmin(pg_current_snapshot())::text::xid8;
    baseline badged.baselines;
    range    badged.log_ranges;
    gone     integer[] := '{}';
    start    xid8;
    needed   boolean;
BEGIN
    SELECT * INTO baseline FROM badged.baselines AS b WHERE b.partition_id = partition;
    IF baseline.partition_id IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('LOCK TABLE ONLY badged.%I IN ACCESS EXCLUSIVE MODE', log);
    FOR range IN SELECT * FROM badged.log_ranges AS r WHERE r.partition_id = partition ORDER BY number LOOP
        EXIT WHEN range.ends IS NULL OR range.ends > horizon;
        EXECUTE format('SELECT EXISTS (SELECT FROM badged.%I WHERE (transaction_id, "offset") > ($1, $2))', badged.log_range_table(partition, range.number))
        INTO needed USING baseline.transaction_id, baseline."offset";
        EXIT WHEN needed;
        gone := gone || range.number;
        start := range.ends;
    END LOOP;
    IF gone = '{}' OR gone = '{0}' THEN
        RETURN 0;
    END IF;
    PERFORM badged.drop_tables(
        ARRAY(SELECT badged.log_range_table(partition, number) FROM unnest(gone) AS number));
    DELETE FROM badged.log_ranges AS r WHERE r.partition_id = partition AND number = ANY (gone);
    PERFORM badged.create_log_range(partition, 0, 'MINVALUE', quote_literal(start));
    INSERT INTO badged.log_ranges (partition_id, number, starts, ends, made_id) VALUES (partition, 0, '0', start, horizon);
    RETURN cardinality(gone);
END
$$;

-- The audit trail, a chain of records (ADR 27). The end of an action is another row, so that no role
-- that writes the trail needs the right to change rows.
CREATE TABLE badged.audit (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    who       text        NOT NULL,
    -- file: a process has loaded a file that was changed.
    via       text        NOT NULL CHECK (via IN ('api', 'cli', 'file')),
    action    text        NOT NULL,
    arguments json        NOT NULL,
    -- The number and the hash of the record in the chain.
    number    bigint      NOT NULL UNIQUE,
    hash      bytea       NOT NULL,
    -- If an erased user was removed from the record: the digest of the original content, with which
    -- the hash can still be verified. A later record, audit.redact, has the new digest.
    digest    bytea
);
-- The trails of several databases are merged in the order of time.
CREATE INDEX audit_at ON badged.audit (at, id);
-- For exporting and erasing a user.
CREATE INDEX audit_words ON badged.audit USING gin (badged.words(who || '"' || arguments::text)) WITH (gin_pending_list_limit = 256);

-- The end of each action. number, hash and digest are as in badged.audit.
CREATE TABLE badged.audit_ends (
    audit_id bigint      PRIMARY KEY REFERENCES badged.audit ON DELETE CASCADE,
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    result   json,
    error    text,
    number   bigint      NOT NULL UNIQUE,
    hash     bytea       NOT NULL,
    digest   bytea
);
CREATE INDEX audit_ends_words ON badged.audit_ends USING gin (badged.words(coalesce(result::text, '') || '"' || coalesce(error, ''))) WITH (gin_pending_list_limit = 256);

-- The last record of the chain, and where the chain begins after pruning.
CREATE TABLE badged.audit_chain (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- How many records were ever written, and the hash of the last.
    records     bigint  NOT NULL,
    head        bytea   NOT NULL,
    -- How many records were pruned, and the hash of the last pruned record.
    pruned      bigint  NOT NULL DEFAULT 0,
    pruned_head bytea
);

-- Return the parts of a record that are hashed: the fields that never change, and the content, from
-- which an erased user may be removed. The package admin verifies records with the same rules.
CREATE FUNCTION badged.audit_fields(a badged.audit) RETURNS text[]
    LANGUAGE sql STABLE
    RETURN ARRAY['begin', (a).id::text, (extract(epoch FROM (a).at) * 1000000)::bigint::text, (a).who, (a).via, (a).action];
CREATE FUNCTION badged.audit_fields(e badged.audit_ends) RETURNS text[]
    LANGUAGE sql STABLE
    RETURN ARRAY['end', (e).audit_id::text, (extract(epoch FROM (e).ended_at) * 1000000)::bigint::text];
CREATE FUNCTION badged.audit_content(a badged.audit) RETURNS text[]
    LANGUAGE sql STABLE
    RETURN ARRAY[(a).arguments::text];
CREATE FUNCTION badged.audit_content(e badged.audit_ends) RETURNS text[]
    LANGUAGE sql STABLE
    RETURN ARRAY[(e).result::text, (e).error];

-- Returns the SHA-256 of fields. Their lengths make the texts of different lists different.
CREATE FUNCTION badged.audit_digest(fields text[]) RETURNS bytea
    LANGUAGE sql STABLE STRICT
    RETURN sha256(convert_to((
        SELECT string_agg(coalesce(octet_length(convert_to(f, 'UTF8')) || ':' || f, '-'), '' ORDER BY n)
        FROM unnest(fields) WITH ORDINALITY AS u (f, n)
    ), 'UTF8'));

-- Returns the hash of a record; before is the hash of the previous record.
CREATE FUNCTION badged.audit_link(before bytea, number bigint, fields text[], content text[]) RETURNS bytea
    LANGUAGE sql STABLE STRICT
    RETURN sha256(before || badged.audit_digest(array_append(array_prepend(number::text, fields), encode(badged.audit_digest(content), 'hex'))));

-- Appends a record to the chain. Other transactions that append wait until this one ends.
CREATE FUNCTION badged.chain_audit(fields text[], content text[], OUT number bigint, OUT hash bytea)
    LANGUAGE sql STRICT
BEGIN ATOMIC
    INSERT INTO badged.audit_chain AS c (records, head)
    VALUES (1, badged.audit_link(decode(repeat('00', 32), 'hex'), 1, fields, content))
    ON CONFLICT (singleton) DO UPDATE SET records = c.records + 1, head = badged.audit_link(c.head, c.records + 1, fields, content)
    RETURNING c.records, c.head;
END;

-- The chain is extended by triggers, so that no program needs rights on it.
CREATE FUNCTION badged.chain_record() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.digest := NULL; -- the content of a new record, also of a copied one, is complete
    SELECT c.number, c.hash INTO NEW.number, NEW.hash FROM badged.chain_audit(badged.audit_fields(NEW), badged.audit_content(NEW)) AS c;
    RETURN NEW;
END
$$;
CREATE TRIGGER chain_record BEFORE INSERT ON badged.audit FOR EACH ROW EXECUTE FUNCTION badged.chain_record();
CREATE TRIGGER chain_record BEFORE INSERT ON badged.audit_ends FOR EACH ROW EXECUTE FUNCTION badged.chain_record();

-- Rebuilds and verifications. The process that runs a job holds the advisory lock of its id.
CREATE TABLE badged.jobs (
    id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text        NOT NULL CHECK (kind IN ('rebuild', 'verification')),
    arguments        json        NOT NULL,
    started_by       text        NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    process          text        NOT NULL,
    state            text        NOT NULL DEFAULT 'running'
                                 CHECK (state IN ('running', 'done', 'failed', 'canceled', 'interrupted')),
    progress         json        NOT NULL DEFAULT '{}',
    cancel_requested boolean     NOT NULL DEFAULT false,
    ended_at         timestamptz CHECK ((ended_at IS NULL) = (state = 'running')),
    result           json,
    error            text
);

-- The counters of each process since its start, sampled every few seconds and stored for an hour. A
-- crash of Postgres may empty the table without harm.
CREATE UNLOGGED TABLE badged.samples (
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    process    text        NOT NULL,
    started_at timestamptz NOT NULL,
    roles      text[]      NOT NULL,
    counted    json        NOT NULL,
    PRIMARY KEY (at, process, started_at)
);

-- The roles to which `badged migrate up` grants the rights that new tables require.
CREATE TABLE badged.granted_roles (
    role       name PRIMARY KEY,
    kind       text NOT NULL CHECK (kind IN ('server', 'publisher', 'consumer', 'reader')),
    -- A digest of the schema and of the script at the last grant.
    granted_as text NOT NULL
);

-- Users whose connections were ended, or whose tokens are revoked.
CREATE TABLE badged.revocations (
    -- From revocation_counter, in the order of commits.
    seq            bigint      NOT NULL,
    -- Tokens issued before are refused; null if only connections were ended.
    revoked_before timestamptz,
    ended_at       timestamptz NOT NULL,
    user_id        text        NOT NULL COLLATE "C" PRIMARY KEY
);
CREATE INDEX revocations_seq ON badged.revocations (seq);
-- Rows that revoke nothing live for an hour.
CREATE INDEX revocations_ended ON badged.revocations (seq) WHERE revoked_before IS NULL;

-- The lock of the row serializes revocations: numbers of a sequence could commit in another order.
CREATE TABLE badged.revocation_counter (
    last      bigint  NOT NULL,
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton)
);
INSERT INTO badged.revocation_counter VALUES (0);

-- Digests of the ids of erased users whose tokens are revoked. The ids themselves are not stored.
CREATE TABLE badged.erased_revocations (
    seq            bigint      NOT NULL,
    revoked_before timestamptz NOT NULL,
    -- SHA-256 of the secret and the id.
    digest         bytea       NOT NULL PRIMARY KEY CHECK (octet_length(digest) = 32)
);
CREATE INDEX erased_revocations_seq ON badged.erased_revocations (seq);

-- The secret of these digests, and of digests and proofs in archives. They reveal no id without it.
CREATE TABLE badged.revocation_secret (
    secret    bytea   NOT NULL CHECK (octet_length(secret) = 32),
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton)
);
INSERT INTO badged.revocation_secret VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- Returns whether a proof in an archive belongs to a text. Only roles that may read the secret can
-- create a proof, but readers of the archive may check it here.
CREATE FUNCTION badged.archive_proves(proof text, content text) RETURNS boolean
    LANGUAGE sql STABLE STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN EXISTS (SELECT FROM badged.revocation_secret
        WHERE proof = encode(sha256(secret || sha256(secret || convert_to(content, 'UTF8'))), 'hex'));

-- Fails if a user's token that was issued at the given time is revoked; null is an unknown time. A
-- transaction that writes on behalf of a token runs it last, in the same message as the commit, so
-- that every revocation before the commit counts.
CREATE FUNCTION badged.refuse_revoked(user_ids text[], issued_at timestamptz[]) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM unnest(user_ids, issued_at) AS given (user_id, issued_at) JOIN badged.revocations AS r USING (user_id)
        WHERE coalesce(given.issued_at, '-infinity') < r.revoked_before
    ) OR EXISTS (
        SELECT FROM unnest(user_ids, issued_at) AS given (user_id, issued_at), badged.revocation_secret AS s, badged.erased_revocations AS e
        WHERE e.digest = sha256(s.secret || convert_to(given.user_id, 'UTF8')) AND coalesce(given.issued_at, '-infinity') < e.revoked_before
    ) THEN
        RAISE EXCEPTION 'the token of the user was revoked' USING ERRCODE = 'BD101';
    END IF;
END
$$;

-- How much of a key's quota for a day, in UTC, the processes have used.
CREATE TABLE badged.key_quotas (
    taken bigint NOT NULL CHECK (taken >= 0),
    day   date   NOT NULL,
    key   text   NOT NULL COLLATE "C",
    PRIMARY KEY (key, day)
);
-- +goose StatementEnd
