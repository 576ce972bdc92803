-- Users whose connections were ended, and whose tokens are revoked.

-- +goose Up

CREATE TABLE badged.revocations (
    -- From revocation_counter, in the order of commits: a process that has read up to
    -- one number finds all that came later.
    seq            bigint      NOT NULL,
    -- Tokens issued before are refused; null if only connections were ended.
    revoked_before timestamptz,
    ended_at       timestamptz NOT NULL,
    user_id        text        NOT NULL COLLATE "C" PRIMARY KEY
);
CREATE INDEX revocations_seq ON badged.revocations (seq);

-- One row. Its lock gives revocations their order; a sequence would hand out numbers
-- that commit in another.
CREATE TABLE badged.revocation_counter (
    last      bigint  NOT NULL,
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton)
);
INSERT INTO badged.revocation_counter VALUES (0);
