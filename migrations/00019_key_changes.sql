-- Changes of keys in the audit trail.

-- +goose Up
-- file: a process has loaded a file that somebody changed.
ALTER TABLE badged.audit DROP CONSTRAINT audit_via_check;
ALTER TABLE badged.audit ADD CONSTRAINT audit_via_check CHECK (via IN ('api', 'cli', 'file'));
