-- What holds on after a user was erased, and quotas that processes share.

-- +goose Up

-- A digest of the id of an erased user whose tokens are revoked. The id is nowhere, and
-- a token that comes with it is refused.
CREATE TABLE badged.erased_revocations (
    -- From revocation_counter, as in revocations.
    seq            bigint      NOT NULL,
    -- Tokens issued before are refused.
    revoked_before timestamptz NOT NULL,
    -- SHA-256 of the secret and the id.
    digest         bytea       NOT NULL PRIMARY KEY CHECK (octet_length(digest) = 32)
);
CREATE INDEX erased_revocations_seq ON badged.erased_revocations (seq);

-- The secret of the digests, and of the digests and proofs in archives, without which the ids
-- cannot be guessed from them.
CREATE TABLE badged.revocation_secret (
    secret    bytea   NOT NULL CHECK (octet_length(secret) = 32),
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton)
);
INSERT INTO badged.revocation_secret VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- Returns whether a proof in an archive is of a text: a keyed hash, which only a role that
-- may read the secret can make. Readers of the archive may check it.
-- +goose StatementBegin
CREATE FUNCTION badged.archive_proves(proof text, content text) RETURNS boolean
    LANGUAGE sql STABLE STRICT
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM badged.revocation_secret
        WHERE proof = encode(sha256(secret || sha256(secret || convert_to(content, 'UTF8'))), 'hex'))
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION badged.archive_proves(text, text) FROM PUBLIC;

-- Fails if tokens of users are revoked that were issued at these times, null for an unknown
-- time. What writes for such a token runs it last in its transaction, in the same message as
-- the commit: what was revoked before then counts, however long the request has waited.
-- +goose StatementBegin
CREATE FUNCTION badged.refuse_revoked(user_ids text[], issued_at timestamptz[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM unnest(user_ids, issued_at) AS given (user_id, issued_at) JOIN badged.revocations AS r USING (user_id)
        WHERE coalesce(given.issued_at, '-infinity') < r.revoked_before
    ) OR EXISTS (
        SELECT FROM unnest(user_ids, issued_at) AS given (user_id, issued_at), badged.revocation_secret AS s, badged.erased_revocations AS e
        WHERE e.digest = sha256(s.secret || convert_to(given.user_id, 'UTF8')) AND coalesce(given.issued_at, '-infinity') < e.revoked_before
    ) THEN
        RAISE EXCEPTION 'the token of the user was revoked' USING ERRCODE = 'BD101';
    END IF;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION badged.refuse_revoked(text[], timestamptz[]) FROM PUBLIC;

-- How much of a day's quota of a key processes have taken.
CREATE TABLE badged.key_quotas (
    taken bigint NOT NULL CHECK (taken >= 0),
    -- Of UTC.
    day   date   NOT NULL,
    key   text   NOT NULL COLLATE "C",
    PRIMARY KEY (key, day)
);
