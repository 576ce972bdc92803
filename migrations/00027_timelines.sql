-- What a failover of Postgres has kept: a position that is older than the failover is
-- answered only if everything up to it is known to have survived.

-- +goose Up

-- How far each partition was folded when its timeline of Postgres ended, which a promotion
-- or a point-in-time recovery does. What was folded then has survived. Numbers of
-- transactions are those of this cluster of Postgres, and mean nothing in a copy.
CREATE TABLE badged.timeline_ends (
    partition      smallint    NOT NULL,
    -- The timeline that ended, and the one that followed it.
    timeline       bigint      NOT NULL,
    next_timeline  bigint      NOT NULL,
    transaction_id bigint      NOT NULL,
    -- Transactions up to that one whose events were not folded.
    pending        bigint[]    NOT NULL,
    noticed_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, timeline),
    CHECK (next_timeline > timeline)
);

-- Positions have the timeline in front, in steps of 2^44 transactions. It makes a
-- position for at_least of what badged.publish returns, in the same transaction.
-- +goose StatementBegin
CREATE FUNCTION badged.position_of(transaction_id bigint) RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
RETURN transaction_id | (('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint << 44);
-- +goose StatementEnd
