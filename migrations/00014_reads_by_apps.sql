-- What apps said that they have read ahead of the log, and conversations that
-- users left ahead of it.

-- +goose Up
-- The batches at hand end, and no other begins: one locks its part of a table
-- before the whole, and what follows the whole before its parts.
-- +goose StatementBegin
DO $$
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        EXECUTE format('LOCK TABLE badged.%I IN EXCLUSIVE MODE', badged.log_table(p) || '_offsets');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- The tables, those of every base, and those that a rebuild or an archiving fills
-- right now.
-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    -- The tables of all partitions first, which changes their parts too; but what
    -- a rebuild has put in place has checks of its own as well.
    FOR name IN
        SELECT relname FROM pg_class
        WHERE relnamespace = 'badged'::regnamespace AND relname ~ '^users(_p[0-9]+(_base|_base_next|_rebuild)?)?$' AND relkind IN ('r', 'p')
        ORDER BY relkind = 'p' DESC
    LOOP
        EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT IF EXISTS users_version_check', name);
    END LOOP;
    FOR name IN
        SELECT relname FROM pg_class
        WHERE relnamespace = 'badged'::regnamespace AND relname ~ '^users(_p[0-9]+(_base|_base_next|_rebuild))?$' AND relkind IN ('r', 'p')
    LOOP
        EXECUTE format($f$
            ALTER TABLE badged.%I
                -- What apps of the user said that they have read and was not
                -- delivered yet, oldest first; null for nothing.
                ADD COLUMN claims jsonb CHECK (claims <> '[]'),
                -- An app may say it of a user of whom nothing else is known.
                ADD CONSTRAINT users_version_check CHECK (version > 0 OR version = 0 AND claims IS NOT NULL)$f$, name);
    END LOOP;

    FOR name IN
        SELECT relname FROM pg_class
        WHERE relnamespace = 'badged'::regnamespace AND relname ~ '^conversations(_p[0-9]+(_base|_base_next|_rebuild)?)?$' AND relkind IN ('r', 'p')
        ORDER BY relkind = 'p' DESC
    LOOP
        EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT IF EXISTS conversations_check', name);
    END LOOP;
    FOR name IN
        SELECT relname FROM pg_class
        WHERE relnamespace = 'badged'::regnamespace AND relname ~ '^conversations(_p[0-9]+(_base|_base_next|_rebuild))?$' AND relkind IN ('r', 'p')
    LOOP
        EXECUTE format($f$
            ALTER TABLE badged.%I
                -- The user is out while last_seq is not above it.
                ADD CONSTRAINT conversations_left_seq_check CHECK (left_seq >= 0)$f$, name);
    END LOOP;
END
$$;
-- +goose StatementEnd
