-- What is told beside the sockets: devices that get pushes, endpoints of webhooks,
-- and what is due for them.

-- +goose Up
SELECT badged.wait_for_batches();

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
CREATE INDEX alerts_queued ON badged.alerts (queued_at);

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

-- What is due for webhooks, conflated: one row for a subject, however often it
-- changes. The body of a call is made from the tables when it is sent.
CREATE TABLE badged.webhook_queue (
    changes      bigint      NOT NULL,
    -- Of the first change since the last call.
    queued_at    timestamptz NOT NULL,
    due          timestamptz,
    attempts     integer     NOT NULL,
    partition_id smallint    NOT NULL,
    webhook      text        NOT NULL COLLATE "C",
    type         text        NOT NULL COLLATE "C",
    -- A user, a conversation, or the place of a dead letter.
    subject      text        NOT NULL COLLATE "C",
    -- The numbers that the endpoint was last told; rows of badge.changed and
    -- room.changed stay to keep them.
    told         jsonb
) PARTITION BY LIST (partition_id);
CREATE INDEX webhook_queue_due ON badged.webhook_queue (webhook, due) WHERE due IS NOT NULL;

-- Whatever changes badges without the log raises the revision of the partition. Then
-- all its targets are due again.
CREATE TABLE badged.notifier_partitions (
    -- For which all targets were made due, or are being made.
    revision     bigint   NOT NULL,
    partition_id smallint PRIMARY KEY,
    -- How far the users are done; null when all are.
    after_user   text     COLLATE "C"
);

-- +goose StatementBegin
DO $$
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.devices (PRIMARY KEY (user_id, device_id)) FOR VALUES IN (%s) WITH (fillfactor = 80)',
            badged.partition_table('devices', p), p);
        EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.alerts (PRIMARY KEY (user_id, device_id, conversation_id, seq), FOREIGN KEY (user_id, device_id) REFERENCES badged.%I ON DELETE CASCADE) FOR VALUES IN (%s)',
            badged.partition_table('alerts', p), badged.partition_table('devices', p), p);
        EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.room_rounds (PRIMARY KEY (conversation_id)) FOR VALUES IN (%s)',
            badged.partition_table('room_rounds', p), p);
        EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.room_alerts (PRIMARY KEY (conversation_id, seq)) FOR VALUES IN (%s)',
            badged.partition_table('room_alerts', p), p);
        EXECUTE format('CREATE TABLE badged.%I PARTITION OF badged.webhook_queue (PRIMARY KEY (webhook, type, subject), FOREIGN KEY (webhook) REFERENCES badged.webhooks ON DELETE CASCADE) FOR VALUES IN (%s) WITH (fillfactor = 80)',
            badged.partition_table('webhook_queue', p), p);

        -- It begins at the present: without targets there is nothing to tell.
        EXECUTE format($f$INSERT INTO badged.%I (consumer_group, offset_acked, last_processed_transaction_id, era)
            SELECT 'badged_notifier', offset_acked, last_processed_transaction_id, era FROM badged.%1$I WHERE consumer_group = 'projector'$f$,
            badged.log_table(p) || '_offsets');
        EXECUTE format($f$INSERT INTO badged.notifier_partitions (revision, partition_id) SELECT revision, %s FROM badged.%I WHERE consumer_group = 'projector'$f$,
            p, badged.log_table(p) || '_offsets');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Every way to bury a letter tells webhooks.
-- +goose StatementBegin
CREATE FUNCTION badged.tell_of_dead_letters() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO badged.webhook_queue (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
    SELECT b.partition_id, w.name, 'deadletter.buried', b.id::text, clock_timestamp(), clock_timestamp(), 1, 0
    FROM buried AS b, badged.webhooks AS w
    WHERE 'deadletter.buried' = ANY (w.events) AND w.state <> 'disabled';
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION badged.tell_of_dead_letters() FROM PUBLIC;
CREATE TRIGGER tell_of_dead_letters AFTER INSERT ON badged.dead_letters
    REFERENCING NEW TABLE AS buried FOR EACH STATEMENT EXECUTE FUNCTION badged.tell_of_dead_letters();
