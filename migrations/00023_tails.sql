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

-- Forgets a consumer group of `badged tail`, so that archiving keeps nothing for it.
-- +goose StatementBegin
CREATE FUNCTION badged.forget_tail(tail text) RETURNS void
    LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM badged.tail_partitions WHERE consumer_group = tail) THEN
        RAISE EXCEPTION 'there is no tail %', tail USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        EXECUTE format('DELETE FROM badged.%I WHERE consumer_group = $1', badged.log_table(p) || '_offsets') USING tail;
    END LOOP;
    DELETE FROM badged.tail_partitions WHERE consumer_group = tail;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION badged.forget_tail(text) FROM PUBLIC;
