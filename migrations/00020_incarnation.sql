-- Noticing that Postgres may have lost commits that clients were told of.

-- +goose Up

-- The life of Postgres in which the epoch was last known to be right: timeline
-- and start of the postmaster. A promotion and a point-in-time recovery begin a
-- timeline; a restored data directory, and a crash, begin with a start. The
-- projector compares it in every batch, and begins a new epoch where it differs.
ALTER TABLE badged.partitions ADD COLUMN incarnation text NOT NULL DEFAULT '';

UPDATE badged.partitions
SET incarnation = left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text;
