-- What is told beside the sockets: devices that get pushes, endpoints of webhooks, brokers,
-- and what is due for them; and how far brokers are read.

-- +goose Up
-- +goose StatementBegin
-- Numbers registrations of devices, and settings of webhooks: no two have the same
-- generation, also if one is deleted and comes back.
CREATE SEQUENCE badged.target_generations;

-- A device is its own queue: a user who changes a hundred times while its push waits
-- is due once.
CREATE TABLE badged.devices (
    generation      bigint      NOT NULL,
    -- Grows by one each time the user's number may have changed.
    changes         bigint      NOT NULL,
    -- The version and the number that the device was last told; null if it was told
    -- nothing yet.
    told_version    bigint,
    told            bigint,
    registered_at   timestamptz NOT NULL,
    -- When the number may have to be told; null if it need not be.
    due             timestamptz,
    told_at         timestamptz,
    -- Until then only alerts are pushed, or not even these: an app is in the
    -- foreground, or a push failed a moment ago.
    quiet_until     timestamptz,
    held_until      timestamptz,
    last_error_at   timestamptz,
    -- Since the last push that succeeded.
    attempts        integer     NOT NULL,
    partition_id    smallint    NOT NULL,
    user_id         text        NOT NULL COLLATE "C",
    device_id       text        NOT NULL COLLATE "C",
    app             text        NOT NULL COLLATE "C",
    platform        text        NOT NULL COLLATE "C",
    environment     text        NOT NULL,
    -- total, mentions, or category:NAME.
    shows           text        NOT NULL,
    told_epoch      text,
    last_error      text,
    -- The gateways with connections of the device, as far as held_until has not passed.
    held_by         text[],
    -- The token or subscription, sealed if a key is configured, and the SHA-256 of what
    -- it reaches, which belongs to one user.
    token           bytea       NOT NULL,
    fingerprint     bytea       NOT NULL
) PARTITION BY LIST (partition_id);
CREATE INDEX devices_due ON badged.devices (app, platform, due) WHERE due IS NOT NULL;
CREATE INDEX devices_fingerprint ON badged.devices (fingerprint);

-- Notifications that are pushed, and for a day those that were or need not be: an
-- event that is published again notifies once.
CREATE TABLE badged.alerts (
    seq             bigint      NOT NULL,
    queued_at       timestamptz NOT NULL,
    settled_at      timestamptz,
    -- When it was sent, and when the device was told to remove it again.
    sent_at         timestamptz,
    retracted_at    timestamptz,
    partition_id    smallint    NOT NULL,
    -- Whether the message mentions the user, and whether by name.
    mentions        boolean     NOT NULL,
    named           boolean     NOT NULL,
    user_id         text        NOT NULL COLLATE "C",
    device_id       text        NOT NULL COLLATE "C",
    conversation_id text        NOT NULL COLLATE "C",
    -- Empty once it is settled.
    title           text        NOT NULL,
    body            text        NOT NULL,
    data            jsonb
) PARTITION BY LIST (partition_id);
CREATE INDEX alerts_waiting ON badged.alerts (user_id, device_id, queued_at) WHERE settled_at IS NULL;
CREATE INDEX alerts_shown ON badged.alerts (user_id, device_id, sent_at) WHERE sent_at IS NOT NULL AND retracted_at IS NULL;
-- For deleting them: those that are shown live longer.
CREATE INDEX alerts_queued ON badged.alerts ((CASE WHEN sent_at IS NOT NULL AND retracted_at IS NULL THEN 1 ELSE 0 END), queued_at);

-- A round tells the members of a room that its state has changed. A row stays until
-- the next round may begin.
CREATE TABLE badged.room_rounds (
    -- When the next round may begin, or the present one did.
    due             timestamptz NOT NULL,
    -- When the present round began; null if there is none.
    began_at        timestamptz,
    partition_id    smallint    NOT NULL,
    -- Whether the room has changed since the last round began.
    changed         boolean     NOT NULL,
    conversation_id text        NOT NULL COLLATE "C",
    -- The present round has passed the members up to here.
    after_user      text        COLLATE "C"
) PARTITION BY LIST (partition_id);
CREATE INDEX room_rounds_due ON badged.room_rounds (due);

-- Notifications of messages to rooms that no round has handed to devices yet.
CREATE TABLE badged.room_alerts (
    seq             bigint      NOT NULL,
    queued_at       timestamptz NOT NULL,
    partition_id    smallint    NOT NULL,
    mentions_all    boolean     NOT NULL,
    conversation_id text        NOT NULL COLLATE "C",
    sender_id       text        NOT NULL COLLATE "C",
    title           text        NOT NULL,
    body            text        NOT NULL,
    data            jsonb
) PARTITION BY LIST (partition_id);

CREATE TABLE badged.webhooks (
    generation      bigint      NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Of the ladder of retries: its step, 0 while calls succeed, and when the next
    -- call may be made.
    due             timestamptz,
    failing_since   timestamptz,
    last_success_at timestamptz,
    last_failure_at timestamptz,
    step            integer     NOT NULL DEFAULT 0,
    -- Of HTTP; null if there was no answer.
    last_status     integer,
    batch           integer     NOT NULL CHECK (batch BETWEEN 1 AND 100),
    -- The most calls a minute that the endpoint permits; 0 is no limit.
    rate            integer     NOT NULL,
    -- Whether --webhooks-config declares it: only its state is set over the API, and it is
    -- deleted once the file lacks it.
    declared        boolean     NOT NULL DEFAULT false,
    name            text        NOT NULL COLLATE "C" PRIMARY KEY,
    url             text        NOT NULL,
    state           text        NOT NULL CHECK (state IN ('active', 'paused', 'disabled')),
    last_error      text,
    -- Sealed if a key is configured; the first signs.
    secrets         bytea[]     NOT NULL,
    events          text[]      NOT NULL,
    -- Null for all.
    categories      text[]
);

-- What is due for webhooks beside the log: subjects that an endpoint refuses while it
-- accepts others, dead letters, drift, rooms that are told later, and since when
-- something has been unread. What has changed in the log is due by the position of the
-- webhook. The body of a call is made from the tables when it is sent.
CREATE TABLE badged.webhook_queue (
    -- Grows by one each time the subject is queued again.
    changes      bigint      NOT NULL,
    queued_at    timestamptz NOT NULL,
    due          timestamptz,
    attempts     integer     NOT NULL,
    partition_id smallint    NOT NULL,
    webhook      text        NOT NULL COLLATE "C",
    type         text        NOT NULL COLLATE "C",
    -- A user, a conversation, or the id of a dead letter.
    subject      text        NOT NULL COLLATE "C",
    -- Of a reminder, since when the categories of the user have been unread.
    told         jsonb
) PARTITION BY LIST (partition_id);
CREATE INDEX webhook_queue_due ON badged.webhook_queue (webhook, due) WHERE due IS NOT NULL;

-- What changes all badges of a partition without the log raises its revision. Then all
-- its devices are due again. What changes some badges raises both revisions.
CREATE TABLE badged.notifier_partitions (
    -- For which all devices were made due, or are being made.
    revision     bigint   NOT NULL,
    partition_id smallint PRIMARY KEY,
    -- How far the users are done; null when all are.
    after_user   text     COLLATE "C"
);

-- Creates the tables with what is due of a partition.
CREATE FUNCTION badged.create_queues(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Updates of what is due are not heap-only (ADR 65), and alerts come and go: a vacuum that
    -- waits for a fifth of the rows has much to do at once.
    PERFORM badged.create_part('devices', partition, 'PRIMARY KEY (user_id, device_id)', 'WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)');
    PERFORM badged.create_part('alerts', partition, format('PRIMARY KEY (user_id, device_id, conversation_id, seq), FOREIGN KEY (user_id, device_id) REFERENCES badged.%I ON DELETE CASCADE',
        badged.partition_table('devices', partition)), 'WITH (autovacuum_vacuum_scale_factor = 0.05)');
    PERFORM badged.create_part('room_rounds', partition, 'PRIMARY KEY (conversation_id)', '');
    PERFORM badged.create_part('room_alerts', partition, 'PRIMARY KEY (conversation_id, seq)', '');
    PERFORM badged.create_part('webhook_queue', partition, 'PRIMARY KEY (webhook, type, subject), FOREIGN KEY (webhook) REFERENCES badged.webhooks ON DELETE CASCADE', 'WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)');
END
$$;

INSERT INTO badged.notifier_partitions (revision, partition_id) SELECT 0, partition_id FROM badged.partitions;
DO $$
DECLARE
    p integer;
BEGIN
    FOR p IN SELECT badged.existing_partitions() LOOP
        PERFORM badged.create_queues(p);
        EXECUTE format($f$INSERT INTO badged.%I VALUES ('badged_notifier', 0, '0')$f$, badged.log_table(p) || '_offsets');
    END LOOP;
END
$$;

-- Every way to bury a letter tells webhooks. Letters of brokers wait in the first partition.
-- Those of a partition that another shard sends are known already, with what is to be told
-- of them.
CREATE FUNCTION badged.tell_of_dead_letters() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO badged.webhook_queue (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
    SELECT coalesce(b.partition_id, (SELECT min(p.partition_id) FROM badged.partitions AS p), 0), w.name, 'deadletter.buried', b.id::text, clock_timestamp(), clock_timestamp(), 1, 0
    FROM buried AS b, badged.webhooks AS w
    WHERE 'deadletter.buried' = ANY (w.events) AND w.state <> 'disabled'
      AND NOT badged.is_moved_here(b.partition_id);
    RETURN NULL;
END
$$;
CREATE TRIGGER tell_of_dead_letters AFTER INSERT ON badged.dead_letters
    REFERENCING NEW TABLE AS buried FOR EACH STATEMENT EXECUTE FUNCTION badged.tell_of_dead_letters();

-- What consumer groups that tell badges have told of each partition beside their positions in
-- the log: those of `badged tail`, and one for each webhook, 'badged webhook ' and its name.
-- What changes all badges of a partition without the log raises its revision. Then the badges
-- of all its users are told again.
CREATE TABLE badged.tail_partitions (
    consumer_group text     NOT NULL COLLATE "C",
    -- The revision for which all badges were told, or are being told; -1 before the first.
    revision       bigint   NOT NULL DEFAULT -1,
    partition_id   smallint NOT NULL,
    -- How far the users are done; null when all are.
    after_user     text     COLLATE "C",
    PRIMARY KEY (consumer_group, partition_id)
);

-- Forgets a consumer group of `badged tail`, so that archiving keeps nothing for it.
CREATE FUNCTION badged.forget_tail(tail text) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    p integer;
BEGIN
    IF NOT EXISTS (SELECT FROM badged.tail_partitions WHERE consumer_group = tail) THEN
        RAISE EXCEPTION 'there is no tail %', tail USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR p IN SELECT badged.existing_partitions() LOOP
        EXECUTE format('DELETE FROM badged.%I WHERE consumer_group = $1', badged.log_table(p) || '_offsets') USING tail;
    END LOOP;
    DELETE FROM badged.tail_partitions WHERE consumer_group = tail;
END
$$;

-- Gives the webhooks that tell of users positions in a partition: a new one begins behind
-- what is folded. Takes those of others away, so that archiving keeps nothing for them.
CREATE FUNCTION badged.settle_webhooks(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    offsets CONSTANT text := badged.log_table(partition) || '_offsets';
    told    CONSTANT text := $q$SELECT 'badged webhook ' || name FROM badged.webhooks
        WHERE state <> 'disabled' AND events && ARRAY['badge.changed', 'unread.reminder']$q$;
BEGIN
    EXECUTE format($q$DELETE FROM badged.%I WHERE consumer_group LIKE 'badged webhook %%' AND consumer_group NOT IN (%s)$q$, offsets, told);
    EXECUTE format($q$DELETE FROM badged.tail_partitions WHERE partition_id = $1 AND consumer_group LIKE 'badged webhook %%' AND consumer_group NOT IN (%s)$q$, told)
    USING partition;
    EXECUTE format($q$INSERT INTO badged.%1$I (consumer_group, offset_acked, last_processed_transaction_id, era, folded)
        SELECT w.consumer_group, f.offset_acked, f.last_processed_transaction_id, f.era, f.folded
        FROM badged.%1$I AS f, (%2$s) AS w (consumer_group) WHERE f.consumer_group = 'projector'
        ON CONFLICT DO NOTHING$q$, offsets, told);
    EXECUTE format($q$INSERT INTO badged.tail_partitions (consumer_group, revision, partition_id)
        SELECT w.consumer_group, f.revision, $1
        FROM badged.%I AS f, (%s) AS w (consumer_group) WHERE f.consumer_group = 'projector'
        ON CONFLICT DO NOTHING$q$, offsets, told)
    USING partition;
END
$$;

-- Every way to store or delete a webhook settles its positions.
CREATE FUNCTION badged.settle_webhooks() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM badged.settle_webhooks(p.partition_id::integer) FROM (SELECT partition_id FROM badged.partitions ORDER BY partition_id) AS p;
    RETURN NULL;
END
$$;
CREATE TRIGGER settle_webhooks AFTER INSERT OR DELETE ON badged.webhooks
    FOR EACH STATEMENT EXECUTE FUNCTION badged.settle_webhooks();
CREATE TRIGGER settle_changed_webhooks AFTER UPDATE ON badged.webhooks
    FOR EACH ROW WHEN (OLD.state <> NEW.state OR OLD.events <> NEW.events) EXECUTE FUNCTION badged.settle_webhooks();

-- Tells devices and webhooks of users whose badges have changed without the log, instead of
-- all users of the partition: its revision was raised once in this transaction.
CREATE FUNCTION badged.tell_of_users(partition integer, users text[]) RETURNS void
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE badged.notifier_partitions AS n SET revision = n.revision + 1 WHERE n.partition_id = partition;
    UPDATE badged.tail_partitions AS t SET revision = t.revision + 1 WHERE t.partition_id = partition AND t.consumer_group LIKE 'badged webhook %';
    UPDATE badged.devices AS d SET changes = d.changes + 1, due = least(d.due, greatest(clock_timestamp(), d.quiet_until, d.held_until))
    FROM (SELECT o.user_id, o.device_id FROM badged.devices AS o WHERE o.partition_id = partition AND o.user_id = ANY (users)
          ORDER BY o.user_id, o.device_id FOR UPDATE) AS k
    WHERE d.partition_id = partition AND (d.user_id, d.device_id) = (k.user_id, k.device_id);
    EXECUTE format($q$
        INSERT INTO badged.%I AS q (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
        SELECT $1, w.name, t.type, u.name, clock_timestamp(), clock_timestamp(), 1, 0
        FROM badged.webhooks AS w, unnest(ARRAY['badge.changed', 'unread.reminder']) AS t (type), unnest($2) AS u (name)
        WHERE t.type = ANY (w.events) AND w.state <> 'disabled'
        ORDER BY w.name, t.type COLLATE "C", u.name COLLATE "C"
        ON CONFLICT (webhook, type, subject) DO UPDATE SET due = least(q.due, excluded.due), changes = q.changes + 1$q$,
        badged.partition_table('webhook_queue', partition)) USING partition, users;
END
$$;

-- How far each partition of a broker's stream is read. The transaction that appends its
-- events moves the position.
CREATE TABLE badged.ingest_positions (
    broker      text COLLATE "C" NOT NULL,
    stream      text COLLATE "C" NOT NULL,
    -- 0 where streams have no partitions.
    partition   integer          NOT NULL,
    -- Differs between streams that have the same name one after the other. '' if the
    -- broker cannot tell them apart.
    incarnation text COLLATE "C" NOT NULL,
    -- Of the last message that was read, as the broker writes it; '' before the first.
    position    text COLLATE "C" NOT NULL DEFAULT '',
    -- How many messages were read.
    messages    bigint           NOT NULL DEFAULT 0,
    -- How often the partition went back to a position before one that was read.
    resets      integer          NOT NULL DEFAULT 0,
    read_at     timestamptz,
    PRIMARY KEY (broker, stream, partition, incarnation)
);

-- With several databases, how far the messages of a broker are in each partition of the
-- log. The transaction that appends events of messages to partitions of the log moves their
-- places. The database with the position of the broker's partition needs none: it moves
-- the position itself. Both move when all databases have the messages; in between, places
-- are ahead of the position.
CREATE TABLE badged.ingest_places (
    broker       text COLLATE "C" NOT NULL,
    stream       text COLLATE "C" NOT NULL,
    incarnation  text COLLATE "C" NOT NULL,
    -- Of the last message whose events the partition of the log has, or of one behind it
    -- that has none for the partition.
    position     text COLLATE "C" NOT NULL,
    -- That of the broker.
    partition    integer          NOT NULL,
    -- That of badged.ingest_positions when the place was moved: otherwise it is none.
    resets       integer          NOT NULL,
    partition_id smallint         NOT NULL,
    PRIMARY KEY (partition_id, broker, stream, partition, incarnation)
);
-- +goose StatementEnd
