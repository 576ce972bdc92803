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

-- The secret of the digests, without which the ids cannot be guessed from them.
CREATE TABLE badged.revocation_secret (
    secret    bytea   NOT NULL CHECK (octet_length(secret) = 32),
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton)
);
INSERT INTO badged.revocation_secret VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- How much of a day's quota of a key processes have taken.
CREATE TABLE badged.key_quotas (
    taken bigint NOT NULL CHECK (taken >= 0),
    -- Of UTC.
    day   date   NOT NULL,
    key   text   NOT NULL COLLATE "C",
    PRIMARY KEY (key, day)
);
