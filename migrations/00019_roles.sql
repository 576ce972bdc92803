-- Roles that have only the rights they need, which `badged migrate grant` gives
-- them; and an audit trail to which a server can only add.

-- +goose Up

-- The roles and their kinds, so that each `badged migrate up` grants them what
-- new tables take.
CREATE TABLE badged.granted_roles (
    role name PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('server', 'publisher', 'reader'))
);

-- The end of an action of the audit trail is a row of its own: so no role that
-- writes the trail needs the right to change it. The columns of badged.audit for
-- that are written by the release before only.
CREATE TABLE badged.audit_ends (
    audit_id bigint      PRIMARY KEY REFERENCES badged.audit ON DELETE CASCADE,
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    result   json,
    error    text
);
