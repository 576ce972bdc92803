-- Files of archives that are being written anew, without an erased user.

-- +goose Up

-- While a file is replaced, the SHA-256 of the new one: the manifest has either. Null
-- otherwise.
ALTER TABLE badged.archived_files ADD COLUMN next_sha256 text;

-- How often the file was written anew, and the SHA-256 that it had first, null if that is
-- the present one. A database that is restored to before a later revision can tell from the
-- archive that the file came from its own.
ALTER TABLE badged.archived_files ADD COLUMN revision integer NOT NULL DEFAULT 0;
ALTER TABLE badged.archived_files ADD COLUMN origin text;

-- When the file was given up, since it is lost. Null while it is not.
ALTER TABLE badged.archived_files ADD COLUMN given_up timestamptz;

-- The erasures that are complete, by the ids that they have in the archive. Those that are
-- in the archive only were interrupted, or the database was restored to before them.
CREATE TABLE badged.erasures (
    id uuid PRIMARY KEY
);

-- The claims to the archive: each command that writes to it leaves a new one in its manifest.
-- If the manifest has one that is not here, a copy of the database has written, or this one
-- was restored to before it wrote.
CREATE TABLE badged.archive_claims (
    claim      uuid PRIMARY KEY,
    claimed_at timestamptz NOT NULL DEFAULT now()
);
