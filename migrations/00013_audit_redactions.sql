-- Records of the audit trail from which an erased user was taken.

-- +goose Up

-- The digest of what the record said before, which its hash covers; null for a record
-- that says it still. What it says now is in the chain too: a later record of the
-- action audit.redact has the digest of it.
ALTER TABLE badged.audit ADD COLUMN digest bytea;
ALTER TABLE badged.audit_ends ADD COLUMN digest bytea;
