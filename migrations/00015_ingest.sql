-- Messages of brokers: how far they are read, and those that are no events.

-- +goose Up

-- Batches write dead letters.
SELECT badged.wait_for_batches();

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
    read_at     timestamptz,
    PRIMARY KEY (broker, stream, partition, incarnation)
);

-- A dead letter is an event of the log, or a message of a broker. The latter has an
-- origin, and no place in the log.
ALTER TABLE badged.dead_letters
    ADD COLUMN origin text,
    ALTER COLUMN partition_id DROP NOT NULL,
    ALTER COLUMN transaction_id DROP NOT NULL,
    ALTER COLUMN "offset" DROP NOT NULL,
    ALTER COLUMN uuid DROP NOT NULL,
    ADD CONSTRAINT dead_letters_have_a_place CHECK (num_nulls(partition_id, transaction_id, "offset", uuid) = CASE WHEN origin IS NULL THEN 0 ELSE 4 END);

-- Letters of brokers wait for webhooks in partition 0.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.tell_of_dead_letters() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO badged.webhook_queue (partition_id, webhook, type, subject, queued_at, due, changes, attempts)
    SELECT coalesce(b.partition_id, 0), w.name, 'deadletter.buried', b.id::text, clock_timestamp(), clock_timestamp(), 1, 0
    FROM buried AS b, badged.webhooks AS w
    WHERE 'deadletter.buried' = ANY (w.events) AND w.state <> 'disabled';
    RETURN NULL;
END
$$;
-- +goose StatementEnd
