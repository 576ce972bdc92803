-- Files of archives that are being written anew, without an erased user.

-- +goose Up

-- While a file is replaced, the SHA-256 of the new one: the manifest has either. Null
-- otherwise.
ALTER TABLE badged.archived_files ADD COLUMN next_sha256 text;
