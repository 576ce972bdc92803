-- Grants a role the rights of its kind on an outbox, and revokes all its other rights in the
-- schema badged.
DO $$
DECLARE
    role_name CONSTANT text := current_setting('badged.role');
    kind      CONSTANT text := current_setting('badged.kind');
BEGIN
    IF EXISTS (SELECT FROM pg_namespace WHERE nspname = 'badged' AND pg_get_userbyid(nspowner) = role_name) THEN
        RAISE EXCEPTION 'role % owns the schema badged', role_name USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA badged FROM %I', role_name);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA badged FROM %I', role_name);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA badged FROM %I', role_name);
    EXECUTE format('REVOKE ALL ON SCHEMA badged FROM %I', role_name);
    EXECUTE format('GRANT USAGE ON SCHEMA badged TO %I', role_name);
    IF kind = 'publisher' THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION badged.publish(jsonb), badged.publish_batch(jsonb) TO %I', role_name);
    ELSE
        EXECUTE format('GRANT SELECT ON badged.outbox_migrations TO %I', role_name);
        EXECUTE format('GRANT SELECT, DELETE ON badged.outbox TO %I', role_name);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON badged.outbox_refused TO %I', role_name);
        EXECUTE format('GRANT INSERT (transaction_id, published_at, payload) ON badged.outbox TO %I', role_name); -- to retry
    END IF;
END
$$;
