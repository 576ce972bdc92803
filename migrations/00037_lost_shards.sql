-- What a killed migrate up had left to do.

-- +goose Up

-- As what the role was granted its privileges last: the schema and the script. If one has
-- changed since, the next `badged migrate up` grants them again.
ALTER TABLE badged.granted_roles ADD COLUMN granted_as text NOT NULL DEFAULT '';
