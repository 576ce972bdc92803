-- The users who have had the event of a key, so that an event counts once for
-- each user: a retry that names more users than the first time counts for those
-- who are new, in every partition alike.

-- +goose Up

-- Eight bytes of the SHA-256 of each user's id, the ninth to the sixteenth, one
-- user after the other. They are random, so that compressing them is in vain.
-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN
        SELECT relname FROM pg_class
        WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r'
            AND relname ~ '^(dedup_keys_p\d+_g\d+|keys_p\d+_base)$'
        ORDER BY relname
    LOOP
        EXECUTE format('ALTER TABLE badged.%I ADD COLUMN users bytea NOT NULL DEFAULT %L', name, '');
        EXECUTE format('ALTER TABLE badged.%I ALTER COLUMN users SET STORAGE EXTERNAL', name);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Creates the table of the generation after the present one unless it exists,
-- with the columns of the present one's and the rights that others have to it,
-- and returns the number of that generation.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION badged.create_dedup_generation(partition integer) RETURNS integer
    LANGUAGE plpgsql STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    present integer := (SELECT max(generation) FROM badged.dedup_generations WHERE partition_id = partition);
    next    text    := badged.dedup_keys_table(partition, present + 1);
    allowed record;
BEGIN
    IF present IS NULL THEN
        RAISE EXCEPTION 'there is no partition %', partition USING ERRCODE = 'invalid_parameter_value';
    ELSIF to_regclass(format('badged.%I', next)) IS NOT NULL THEN
        RETURN present + 1;
    END IF;
    EXECUTE format('CREATE TABLE badged.%I (LIKE badged.%I INCLUDING DEFAULTS INCLUDING STORAGE, PRIMARY KEY (key))',
        next, badged.dedup_keys_table(partition, present));
    FOR allowed IN
        SELECT a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
        FROM pg_class AS c, aclexplode(c.relacl) AS a
        WHERE c.oid = to_regclass(format('badged.%I', badged.dedup_keys_table(partition, present))) AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT %s ON badged.%I TO %s', allowed.privilege_type, next, allowed.grantee);
    END LOOP;
    RETURN present + 1;
EXCEPTION
    WHEN duplicate_table OR duplicate_object OR unique_violation THEN -- another has been faster
        RETURN present + 1;
END
$$;
-- +goose StatementEnd

-- Sets with more than 1,000 ranges keep the newest 1,000 as ranges and the others
-- as bitmaps, so that a conversation whose seqs have few gaps is exact however
-- many holes its sets have. And a block keeps some of its seqs, so that the first
-- unread message is one that exists.
-- +goose StatementBegin
DO $$
DECLARE
    p            integer;
    name         text;
    is_partition boolean;
    stale        text;
BEGIN
    FOR p IN 0 .. (SELECT partitions - 1 FROM badged.settings) LOOP
        EXECUTE format('LOCK TABLE badged.%I IN EXCLUSIVE MODE', badged.log_table(p) || '_offsets');
    END LOOP;

    -- The table of all partitions first, which changes them too; but what a
    -- rebuild has put in place has checks of its own as well.
    FOR name, is_partition IN
        SELECT relname, relispartition FROM pg_class
        WHERE relnamespace = 'badged'::regnamespace AND relkind IN ('p', 'r')
            AND relname ~ '^conversations(_p[0-9]+(_base|_base_next|_rebuild)?)?$'
        ORDER BY relkind = 'p' DESC, relname
    LOOP
        FOR stale IN
            SELECT conname FROM pg_constraint
            WHERE conrelid = format('badged.%I', name)::regclass AND contype = 'c' AND coninhcount = 0
                AND pg_get_constraintdef(oid) ~ 'cardinality\((unread|mention)_block\) = 3|mention_set <@ unread_set'
        LOOP
            EXECUTE format('ALTER TABLE badged.%I DROP CONSTRAINT %I', name, stale);
        END LOOP;
        CONTINUE WHEN is_partition;
        EXECUTE format($f$
            ALTER TABLE badged.%I
                -- The ranges past the newest 1,000, as projector/words.go encodes
                -- them; the first eight bytes are the least seq.
                ADD COLUMN unread_words bytea,
                ADD COLUMN mention_words bytea,
                -- The fourth element on are seqs of the block that are known.
                ADD CONSTRAINT conversations_unread_block_check
                    CHECK (cardinality(unread_block) >= 3 AND unread_block[1] > read_seq AND unread_block[3] > 0),
                ADD CONSTRAINT conversations_mention_block_check
                    CHECK (cardinality(mention_block) >= 3 AND mention_block[1] > read_seq AND mention_block[3] > 0),
                ADD CONSTRAINT conversations_mentions_unread_check
                    CHECK (mention_set <@ unread_set OR unread_block IS NOT NULL OR unread_words IS NOT NULL)$f$, name);
    END LOOP;
END
$$;
-- +goose StatementEnd
