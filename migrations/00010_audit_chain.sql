-- The audit trail is a chain: each record carries a hash of its content and of the
-- record before it, so that a record that is changed or removed later is noticed.

-- +goose Up

-- The head of the chain, and where it begins. There is no row before the first
-- record.
CREATE TABLE badged.audit_chain (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- How many records were ever written, and the hash of the last.
    records     bigint  NOT NULL,
    head        bytea   NOT NULL,
    -- How many of these were pruned, and the hash of the last of them.
    pruned      bigint  NOT NULL DEFAULT 0,
    pruned_head bytea
);

-- A record is the beginning of an action, or its end. They are numbered together.
-- digest is null unless an erased user was taken out of the content of the record: then
-- it is the digest of what the content was, from which the hash follows. What the
-- content is since, a later record of the action audit.redact has the digest of.
ALTER TABLE badged.audit ADD COLUMN number bigint, ADD COLUMN hash bytea, ADD COLUMN digest bytea;
ALTER TABLE badged.audit_ends ADD COLUMN number bigint, ADD COLUMN hash bytea, ADD COLUMN digest bytea;

-- What is hashed of a record, as the package admin does to verify it: the fields that
-- never change, and the content, from which an erased user may be taken.
CREATE FUNCTION badged.audit_fields(a badged.audit) RETURNS text[]
    LANGUAGE sql STABLE
    RETURN ARRAY['begin', (a).id::text, (extract(epoch FROM (a).at) * 1000000)::bigint::text, (a).who, (a).via, (a).action];
CREATE FUNCTION badged.audit_fields(e badged.audit_ends) RETURNS text[]
    LANGUAGE sql STABLE
    RETURN ARRAY['end', (e).audit_id::text, (extract(epoch FROM (e).ended_at) * 1000000)::bigint::text];
CREATE FUNCTION badged.audit_content(a badged.audit) RETURNS text[]
    LANGUAGE sql STABLE
    RETURN ARRAY[(a).arguments::text];
CREATE FUNCTION badged.audit_content(e badged.audit_ends) RETURNS text[]
    LANGUAGE sql STABLE
    RETURN ARRAY[(e).result::text, (e).error];

-- Returns the SHA-256 of fields. Each has its length in bytes before it, so that no
-- two lists of fields look alike.
CREATE FUNCTION badged.audit_digest(fields text[]) RETURNS bytea
    LANGUAGE sql STABLE STRICT
    RETURN sha256(convert_to((
        SELECT string_agg(coalesce(octet_length(convert_to(f, 'UTF8')) || ':' || f, '-'), '' ORDER BY n)
        FROM unnest(fields) WITH ORDINALITY AS u (f, n)
    ), 'UTF8'));

-- Returns the hash of a record behind one with the hash before.
CREATE FUNCTION badged.audit_link(before bytea, number bigint, fields text[], content text[]) RETURNS bytea
    LANGUAGE sql STABLE STRICT
    RETURN sha256(before || badged.audit_digest(array_append(array_prepend(number::text, fields), encode(badged.audit_digest(content), 'hex'))));

-- Appends a record to the chain, and returns its number and hash. Others wait until
-- the transaction ends.
-- +goose StatementBegin
CREATE FUNCTION badged.chain_audit(fields text[], content text[], OUT number bigint, OUT hash bytea)
    LANGUAGE sql STRICT
BEGIN ATOMIC
    INSERT INTO badged.audit_chain AS c (records, head)
    VALUES (1, badged.audit_link(decode(repeat('00', 32), 'hex'), 1, fields, content))
    ON CONFLICT (singleton) DO UPDATE SET records = c.records + 1, head = badged.audit_link(c.head, c.records + 1, fields, content)
    RETURNING c.records, c.head;
END;
-- +goose StatementEnd

-- The records of earlier versions are numbered by time.
-- +goose StatementBegin
DO $$
DECLARE
    r record;
BEGIN
    FOR r IN
        SELECT 'begin' AS kind, id, at, badged.audit_fields(a) AS fields, badged.audit_content(a) AS content FROM badged.audit AS a
        UNION ALL
        SELECT 'end', audit_id, ended_at, badged.audit_fields(e), badged.audit_content(e) FROM badged.audit_ends AS e
        ORDER BY at, kind, id
    LOOP
        IF r.kind = 'begin' THEN
            UPDATE badged.audit SET (number, hash) = (SELECT c.number, c.hash FROM badged.chain_audit(r.fields, r.content) AS c) WHERE id = r.id;
        ELSE
            UPDATE badged.audit_ends SET (number, hash) = (SELECT c.number, c.hash FROM badged.chain_audit(r.fields, r.content) AS c) WHERE audit_id = r.id;
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

ALTER TABLE badged.audit ALTER COLUMN number SET NOT NULL, ALTER COLUMN hash SET NOT NULL, ADD UNIQUE (number);
ALTER TABLE badged.audit_ends ALTER COLUMN number SET NOT NULL, ALTER COLUMN hash SET NOT NULL, ADD UNIQUE (number);

-- By triggers, so that every program that may add records extends the chain, and can
-- do nothing else with it.
-- +goose StatementBegin
CREATE FUNCTION badged.chain_record() RETURNS trigger
    LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.digest := NULL; -- a copied record begins with what it says
    SELECT c.number, c.hash INTO NEW.number, NEW.hash FROM badged.chain_audit(badged.audit_fields(NEW), badged.audit_content(NEW)) AS c;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER chain_record BEFORE INSERT ON badged.audit FOR EACH ROW EXECUTE FUNCTION badged.chain_record();
CREATE TRIGGER chain_record BEFORE INSERT ON badged.audit_ends FOR EACH ROW EXECUTE FUNCTION badged.chain_record();

REVOKE ALL ON FUNCTION badged.audit_fields(badged.audit), badged.audit_fields(badged.audit_ends), badged.audit_content(badged.audit), badged.audit_content(badged.audit_ends),
    badged.audit_digest(text[]), badged.audit_link(bytea, bigint, text[], text[]), badged.chain_audit(text[], text[]), badged.chain_record() FROM PUBLIC;
