-- What `badged tail` has told of each partition beside the position of its consumer
-- group.

-- +goose Up

-- Whatever changes badges without the log raises the revision of the partition. Then
-- the badges of all its users are told again.
CREATE TABLE badged.tail_partitions (
    consumer_group text     NOT NULL COLLATE "C",
    -- The revision for which all badges were told, or are being told; -1 before the first.
    revision       bigint   NOT NULL DEFAULT -1,
    partition_id   smallint NOT NULL,
    -- How far the users are done; null when all are.
    after_user     text     COLLATE "C",
    PRIMARY KEY (consumer_group, partition_id)
);
