-- When each conversation was last delivered to, and up to when the expiry sweep
-- has looked, so that it finds what has been unread for long.

-- +goose Up
-- Hours, since an update of an indexed column is written to every index of the
-- table: so it is once an hour, and not for every message. Whether something is
-- unread changes with every message, and stays out of the index.
--
-- Of the rows that are there nobody remembers when: they count from now on, and
-- so do those that processes of an older release write. The log's own clock says
-- when an event happened, not that of its publisher.
-- +goose StatementBegin
DO $$
DECLARE
    now_hour integer := floor(extract(epoch FROM now()) / 3600);
BEGIN
    -- A constant default, which rewrites no row.
    EXECUTE format($f$
        ALTER TABLE badged.conversations
            -- Hours since 1970 (UTC) of the latest delivery or mark, as the log
            -- dates it; 0 where there was none.
            ADD COLUMN delivered_hour integer NOT NULL DEFAULT %s CHECK (delivered_hour >= 0)$f$, now_hour);
    EXECUTE format($f$
        ALTER TABLE badged.settings
            -- The delivered_hour of those of which nobody remembers it.
            ADD COLUMN unknown_delivered_hour integer NOT NULL DEFAULT %s$f$, now_hour);
END
$$;
-- +goose StatementEnd

CREATE INDEX conversations_delivered_hour ON badged.conversations (category, delivered_hour);

-- What of a category was delivered before swept_hour has been looked at, and has
-- expired where it was unread. Without a row nothing has been.
CREATE TABLE badged.expiry_progress (
    partition_id smallint NOT NULL,
    category     text     NOT NULL COLLATE "C",
    swept_hour   integer  NOT NULL CHECK (swept_hour >= 0),
    PRIMARY KEY (partition_id, category)
);
