-- Devices, webhooks and consumer groups that publish badges, and how far brokers are read.

-- +goose Up
-- +goose StatementBegin
-- Numbers the registrations of devices and webhooks.
CREATE SEQUENCE badged.target_generations;

-- The devices, which are also the queue of pushes: however often a user's number changes while
-- a push waits, the device is due once.
CREATE TABLE badged.devices (
    generation      bigint      NOT NULL,
    -- Grows by one each time the user's number may have changed.
    changes         bigint      NOT NULL,
    -- The version and the number of the last push to the device; null before the first.
    told_version    bigint,
    told            bigint,
    registered_at   timestamptz NOT NULL,
    -- When a push may have to be sent; null if none is needed.
    due             timestamptz,
    told_at         timestamptz,
    -- Until quiet_until only alerts are pushed, since a push was sent recently. Until held_until
    -- nothing is pushed: an app is in the foreground, or a push failed recently.
    quiet_until     timestamptz,
    held_until      timestamptz,
    last_error_at   timestamptz,
    attempts        integer     NOT NULL, -- since the last push that succeeded
    partition_id    smallint    NOT NULL,
    user_id         text        NOT NULL COLLATE "C",
    device_id       text        NOT NULL COLLATE "C",
    app             text        NOT NULL COLLATE "C",
    platform        text        NOT NULL COLLATE "C",
    environment     text        NOT NULL,
    shows           text        NOT NULL, -- total, mentions, or category:NAME
    told_epoch      text,
    last_error      text,
    -- The gateways to which the device is connected; valid until held_until.
    held_by         text[],
    -- The token or subscription, encrypted if a key is configured, and the SHA-256 of the address
    -- that it reaches.
    token           bytea       NOT NULL,
    fingerprint     bytea       NOT NULL
) PARTITION BY LIST (partition_id);
CREATE INDEX devices_due ON badged.devices (app, platform, due) WHERE due IS NOT NULL;
CREATE INDEX devices_fingerprint ON badged.devices (fingerprint);

-- Notifications for devices. They stay for a day after they were settled, so that an event that is
-- published again does not notify twice.
CREATE TABLE badged.alerts (
    seq             bigint      NOT NULL,
    queued_at       timestamptz NOT NULL,
    settled_at      timestamptz,
    sent_at         timestamptz,
    -- When a push asked the device to remove the notification.
    retracted_at    timestamptz,
    partition_id    smallint    NOT NULL,
    mentions        boolean     NOT NULL,
    named           boolean     NOT NULL, -- by a mention of the user's name
    user_id         text        NOT NULL COLLATE "C",
    device_id       text        NOT NULL COLLATE "C",
    conversation_id text        NOT NULL COLLATE "C",
    -- Empty once settled_at is set.
    title           text        NOT NULL,
    body            text        NOT NULL,
    data            jsonb
) PARTITION BY LIST (partition_id);
CREATE INDEX alerts_waiting ON badged.alerts (user_id, device_id, queued_at) WHERE settled_at IS NULL;
CREATE INDEX alerts_shown ON badged.alerts (user_id, device_id, sent_at) WHERE sent_at IS NOT NULL AND retracted_at IS NULL;
-- For deleting old rows: notifications that devices still show stay longer.
CREATE INDEX alerts_queued ON badged.alerts ((CASE WHEN sent_at IS NOT NULL AND retracted_at IS NULL THEN 1 ELSE 0 END), queued_at);

-- Rounds of notifying the members of a room. A row stays until the next round may begin.
CREATE TABLE badged.room_rounds (
    -- When the next round may begin, or when the current round became due.
    due             timestamptz NOT NULL,
    began_at        timestamptz, -- of the current round; null if there is none
    partition_id    smallint    NOT NULL,
    changed         boolean     NOT NULL, -- since the last round began
    conversation_id text        NOT NULL COLLATE "C",
    -- The current round has processed the members up to this user id.
    after_user      text        COLLATE "C"
) PARTITION BY LIST (partition_id);
CREATE INDEX room_rounds_due ON badged.room_rounds (due);

-- Notifications of messages to rooms, until a round has turned them into alerts.
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
    due             timestamptz, -- the next call
    failing_since   timestamptz,
    last_success_at timestamptz,
    last_failure_at timestamptz,
    -- The number of the current wait between calls, 0 while calls succeed.
    step            integer     NOT NULL DEFAULT 0,
    -- The HTTP status of the last call; null if there was no answer.
    last_status     integer,
    batch           integer     NOT NULL CHECK (batch BETWEEN 1 AND 100),
    -- The most calls a minute that the endpoint permits; 0 means no limit.
    rate            integer     NOT NULL,
    -- Whether the file of --webhooks-config declares the webhook: the API can change only its
    -- state.
    declared        boolean     NOT NULL DEFAULT false,
    name            text        NOT NULL COLLATE "C" PRIMARY KEY,
    url             text        NOT NULL,
    state           text        NOT NULL CHECK (state IN ('active', 'paused', 'disabled')),
    last_error      text,
    -- Encrypted if a key is configured; the first signs calls.
    secrets         bytea[]     NOT NULL,
    events          text[]      NOT NULL,
    categories      text[] -- null means all
);

-- Calls of webhooks that do not follow from the webhook's position in the log: subjects that an
-- endpoint refuses while it accepts others, dead letters, drift, rooms whose members are notified
-- later, and reminders of unread messages. The body is made from the tables when the call is sent.
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
    -- For a reminder: since when each category of the user has been unread.
    told         jsonb
) PARTITION BY LIST (partition_id);
CREATE INDEX webhook_queue_due ON badged.webhook_queue (webhook, due) WHERE due IS NOT NULL;

-- Progress of notifying devices after badges have changed without an event in the log. Such a
-- change raises the revision of the partition, and then all its devices become due, unless
-- badged.tell_of_users raises the revision here too.
CREATE TABLE badged.notifier_partitions (
    revision     bigint   NOT NULL, -- for which all devices were, or are being, made due
    partition_id smallint PRIMARY KEY,
    -- The last user whose devices were made due; null when all were.
    after_user   text     COLLATE "C"
);

CREATE FUNCTION badged.create_queues(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT
AS $$
BEGIN
    -- Vacuum often: updates of the column due are not heap-only (ADR 65), and alerts are soon
    -- deleted. By default a vacuum waits for a fifth of the rows and then takes long.
    PERFORM badged.create_part('devices', partition, 'PRIMARY KEY (user_id, device_id)', 'WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)');
    PERFORM badged.create_part('alerts', partition, format('PRIMARY KEY (user_id, device_id, conversation_id, seq), FOREIGN KEY (user_id, device_id) REFERENCES badged.%I ON DELETE CASCADE',
        badged.partition_table('devices', partition)), 'WITH (autovacuum_vacuum_scale_factor = 0.05)');
    PERFORM badged.create_part('room_rounds', partition, 'PRIMARY KEY (conversation_id)', '');
    PERFORM badged.create_part('room_alerts', partition, 'PRIMARY KEY (conversation_id, seq)', '');
    PERFORM badged.create_part('webhook_queue', partition, 'PRIMARY KEY (webhook, type, subject), FOREIGN KEY (webhook) REFERENCES badged.webhooks ON DELETE CASCADE', 'WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)');
END
$$;

INSERT INTO badged.notifier_partitions (revision, partition_id) SELECT 0, partition_id FROM badged.partitions;
SELECT badged.create_queues(partition_id) FROM badged.partitions;

-- Queues calls of webhooks for each new dead letter, for those from brokers in the first partition.
-- A move of a partition copies the calls for the dead letters that it copies.
CREATE FUNCTION badged.tell_of_dead_letters() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

-- Progress of consumer groups that publish badges: the groups of `badged tail`, and for each
-- webhook the group 'badged webhook ' || name. If the revision of a partition is raised, each group
-- publishes the badges of all its users again.
CREATE TABLE badged.tail_partitions (
    consumer_group text     NOT NULL COLLATE "C",
    revision       bigint   NOT NULL DEFAULT -1, -- as in notifier_partitions
    partition_id   smallint NOT NULL,
    after_user     text     COLLATE "C",
    PRIMARY KEY (consumer_group, partition_id)
);

-- Deletes a consumer group of `badged tail`, so that archiving does not wait for its position.
CREATE FUNCTION badged.forget_tail(tail text) RETURNS void
    LANGUAGE plpgsql
AS $$
DECLARE
    p integer;
BEGIN
    IF NOT EXISTS (SELECT FROM badged.tail_partitions WHERE consumer_group = tail) THEN
        RAISE EXCEPTION 'there is no consumer group % of badged tail', tail USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR p IN SELECT badged.existing_partitions() LOOP
        EXECUTE format('DELETE FROM badged.%I WHERE consumer_group = $1', badged.log_table(p) || '_offsets') USING tail;
    END LOOP;
    DELETE FROM badged.tail_partitions WHERE consumer_group = tail;
END
$$;

-- Creates positions in a partition for the webhooks that report badges; a new webhook begins behind
-- the folded events. Deletes other positions of webhooks, so that archiving does not wait for them.
CREATE FUNCTION badged.settle_webhooks(partition integer) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

-- Creates or deletes positions after any change of a webhook, however it is made.
CREATE FUNCTION badged.settle_webhooks() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

-- Notifies devices and webhooks of users whose badges have changed without an event in the log. The
-- caller has raised the revision of the partition once in this transaction; the function raises the
-- notifiers' revisions by one, so that they do not notify all users.
CREATE FUNCTION badged.tell_of_users(partition integer, users text[]) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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

-- How far each partition of a broker's stream is read. The transaction that appends moves it.
CREATE TABLE badged.ingest_positions (
    broker      text COLLATE "C" NOT NULL,
    stream      text COLLATE "C" NOT NULL,
    partition   integer          NOT NULL, -- 0 where streams have none
    -- Distinguishes a stream from an earlier one of the same name; '' if the broker cannot do so.
    incarnation text COLLATE "C" NOT NULL,
    -- Of the last message that was read, as the broker writes it; '' before the first.
    position    text COLLATE "C" NOT NULL DEFAULT '',
    messages    bigint           NOT NULL DEFAULT 0,
    -- How often the partition of the stream went back to an earlier position.
    resets      integer          NOT NULL DEFAULT 0,
    read_at     timestamptz,
    PRIMARY KEY (broker, stream, partition, incarnation)
);

-- With several databases: up to which message of a broker each partition of the log has the events.
-- The transaction that appends events moves the places of their partitions of the log. The database
-- that stores the position of the broker's partition needs no places: it moves the position, once
-- all other databases have the messages. Until then their places are ahead of the position.
CREATE TABLE badged.ingest_places (
    broker       text COLLATE "C" NOT NULL,
    stream       text COLLATE "C" NOT NULL,
    incarnation  text COLLATE "C" NOT NULL,
    -- Of the last message whose events the partition of the log has, or of a later message without
    -- events for the partition.
    position     text COLLATE "C" NOT NULL,
    partition    integer          NOT NULL,
    -- As in badged.ingest_positions when the place was moved. If it differs now, the place is
    -- ignored.
    resets       integer          NOT NULL,
    partition_id smallint         NOT NULL,
    PRIMARY KEY (partition_id, broker, stream, partition, incarnation)
);
-- +goose StatementEnd
