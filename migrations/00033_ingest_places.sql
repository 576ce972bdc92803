-- With several databases, how far the messages of a broker are in each partition of the
-- log.

-- +goose Up

-- The transaction that appends events of messages to partitions of the log moves their
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

-- How often the broker's partition went back to a position before one that was read.
ALTER TABLE badged.ingest_positions ADD COLUMN resets integer NOT NULL DEFAULT 0;
