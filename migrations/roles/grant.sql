-- Grants a role the rights of its kind in the schema badged, of the log or of an
-- outbox, and revokes all its other rights there. Run it as the owner of the schema:
--
--     SELECT set_config('badged.role', 'chat', false), set_config('badged.kind', 'publisher', false);
--     \i grant.sql
--
-- If a migration adds a table that a server writes, add the table here.
DO $$
DECLARE
    role_name CONSTANT text := current_setting('badged.role');
    kind      CONSTANT text := current_setting('badged.kind');
    kinds     CONSTANT text[] := CASE WHEN to_regclass('badged.outbox') IS NULL
        THEN '{server,publisher,consumer,reader}' ELSE '{relay,publisher}' END;
    partition text;
    granted   text;
BEGIN
    IF kind <> ALL (kinds) THEN
        RAISE EXCEPTION 'the kind of a role is one of %, not %', array_to_string(kinds, ', '), kind USING ERRCODE = 'invalid_parameter_value';
    ELSIF EXISTS (SELECT FROM pg_namespace WHERE nspname = 'badged' AND pg_get_userbyid(nspowner) = role_name) THEN
        RAISE EXCEPTION 'role % owns the schema badged', role_name USING ERRCODE = 'invalid_parameter_value';
    END IF;

    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA badged FROM %I', role_name);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA badged FROM %I', role_name);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA badged FROM %I', role_name);
    EXECUTE format('REVOKE ALL ON SCHEMA badged FROM %I', role_name);
    EXECUTE format('GRANT USAGE ON SCHEMA badged TO %I', role_name);

    IF kind = 'publisher' THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION badged.publish(jsonb), badged.publish_batch(jsonb) TO %I', role_name);
    END IF;
    IF kind = 'relay' THEN
        EXECUTE format('GRANT SELECT ON badged.outbox_migrations TO %I', role_name);
        EXECUTE format('GRANT SELECT, DELETE ON badged.outbox TO %I', role_name);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON badged.outbox_refused TO %I', role_name);
        EXECUTE format('GRANT INSERT (transaction_id, published_at, payload) ON badged.outbox TO %I', role_name); -- to retry
    END IF;
    IF 'relay' = ANY (kinds) THEN
        RETURN; -- an outbox has no other tables, and its grants are not recorded
    END IF;

    IF kind = 'publisher' THEN
        EXECUTE format('GRANT SELECT ON badged.settings, badged.partitions TO %I', role_name);
    ELSIF kind = 'consumer' THEN
        EXECUTE format('GRANT SELECT ON badged.settings TO %I', role_name);
    ELSE
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA badged TO %I', role_name);
        EXECUTE format('GRANT EXECUTE ON FUNCTION badged.partition_of(text), badged.archive_proves(text, text),
            badged.covers(text, text), badged.paths_of(text), badged.closest_level(badged.level, text, jsonb),
            badged.words(text), badged.words(bytea, text, text[]), badged.words_of_user(text),
            badged.log_names(bytea), badged.log_names_of(text[]) TO %I', role_name);
    END IF;
    IF kind = 'reader' THEN
        EXECUTE format('REVOKE ALL ON badged.audit, badged.audit_ends, badged.audit_chain, badged.jobs FROM %I', role_name);
        -- They have tokens, secrets and the text of messages.
        EXECUTE format('REVOKE ALL ON badged.devices, badged.alerts, badged.room_alerts, badged.webhooks, badged.revocation_secret FROM %I', role_name);
        -- For the lag of the notifier.
        EXECUTE format('GRANT SELECT (events, state) ON badged.webhooks TO %I', role_name);
    END IF;

    FOR partition IN
        SELECT 'p' || lpad(p::text, greatest(2, length(p::text)), '0')
        FROM badged.existing_partitions() AS p
    LOOP
        -- Postgres sets the other columns: the position of an event and its era.
        IF kind IN ('server', 'publisher') THEN
            EXECUTE format('GRANT INSERT (uuid, payload, metadata, events) ON badged.%I TO %I', 'events_' || partition, role_name);
        END IF;
        IF kind = 'consumer' THEN
            EXECUTE format('GRANT SELECT ON badged.%I, badged.%I TO %I', 'events_' || partition, 'events_' || partition || '_offsets', role_name);
            EXECUTE format('GRANT INSERT (consumer_group, offset_acked, last_processed_transaction_id), UPDATE (offset_acked, last_processed_transaction_id) ON badged.%I TO %I',
                'events_' || partition || '_offsets', role_name);
        END IF;
        IF kind = 'server' THEN
            EXECUTE format('GRANT INSERT (own, created_at) ON badged.%I TO %I', 'events_' || partition, role_name);
            -- For the consumer groups of badged tail.
            EXECUTE format('GRANT INSERT (consumer_group, offset_acked, last_processed_transaction_id) ON badged.%I TO %I', 'events_' || partition || '_offsets', role_name);
            EXECUTE format('GRANT UPDATE (offset_acked, last_processed_transaction_id, pending, folded) ON badged.%I TO %I', 'events_' || partition || '_offsets', role_name);
            EXECUTE format('GRANT INSERT, UPDATE ON badged.%I, badged.%I TO %I', 'users_' || partition, 'conversations_' || partition, role_name);
            EXECUTE format('GRANT INSERT, UPDATE ON badged.%I TO %I', 'rooms_' || partition, role_name);
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON badged.%I, badged.%I, badged.%I TO %I', 'paths_' || partition, 'room_chunks_' || partition, 'room_marks_' || partition, role_name);
            EXECUTE format('GRANT INSERT, DELETE ON badged.%I, badged.%I TO %I', 'dedup_blocks_' || partition, 'dedup_pages_' || partition, role_name);
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON badged.%I, badged.%I, badged.%I, badged.%I, badged.%I TO %I', 'devices_' || partition, 'alerts_' || partition,
                'room_rounds_' || partition, 'room_alerts_' || partition, 'webhook_queue_' || partition, role_name);
        END IF;
        IF kind = 'reader' THEN
            EXECUTE format('REVOKE ALL ON badged.%I, badged.%I, badged.%I FROM %I', 'devices_' || partition, 'alerts_' || partition, 'room_alerts_' || partition, role_name);
            EXECUTE format('GRANT SELECT (user_id) ON badged.%I TO %I', 'devices_' || partition, role_name);
        END IF;
    END LOOP;

    IF kind = 'server' THEN
        FOREACH granted IN ARRAY ARRAY[
            'UPDATE ON badged.partitions',
            'INSERT ON badged.dedup_generations, badged.settled_letters',
            'INSERT, UPDATE, DELETE ON badged.dedup_runs',
            'INSERT, DELETE ON badged.dead_letters, badged.dedup_filters, badged.rebuilt_partitions, badged.samples',
            'INSERT, UPDATE, DELETE ON badged.healed_users, badged.expiry_progress',
            'INSERT, UPDATE, DELETE ON badged.jobs',
            'INSERT, UPDATE ON badged.late_folds',
            'INSERT, UPDATE, DELETE ON badged.devices, badged.alerts, badged.room_rounds, badged.room_alerts, badged.webhooks, badged.webhook_queue',
            'UPDATE ON badged.notifier_partitions',
            'INSERT, UPDATE, DELETE ON badged.hints',
            'UPDATE ON badged.stale_partitions', -- to lock them
            'INSERT, UPDATE ON badged.ingest_positions, badged.ingest_places, badged.tail_partitions',
            'INSERT, UPDATE ON badged.timeline_ends',
            'INSERT, UPDATE, DELETE ON badged.revocations',
            'UPDATE ON badged.revocation_counter',
            'DELETE ON badged.erased_revocations',
            'INSERT, UPDATE, DELETE ON badged.key_quotas',
            'USAGE ON SEQUENCE badged.target_generations',
            'INSERT (who, via, action, arguments) ON badged.audit',
            'INSERT (audit_id, result, error) ON badged.audit_ends',
            'EXECUTE ON FUNCTION badged.refuse_batch(text), badged.refuse_missing(bigint, bigint),
                badged.pending_at(xid8, pg_snapshot, xid8, xid8[]), badged.move_late(integer, bigint[], bigint[], bigint, bigint),
                badged.extend_log(integer, interval, bigint), badged.index_log(integer), badged.bury_unissued(integer), badged.complete_move(integer, uuid, uuid),
                badged.give_up_partition(integer, text, bigint, timestamptz), badged.settle_stale_partition(integer),
                badged.create_staging_tables(integer), badged.swap_staging_tables(integer), badged.drop_staging_tables(integer),
                badged.analyze_tables(integer, text), badged.refuse_revoked(text[], timestamptz[]), badged.settle_webhooks(integer),
                badged.tell_of_users(integer, text[])'
        ] LOOP
            EXECUTE format('GRANT %s TO %I', granted, role_name);
        END LOOP;
    END IF;

    -- Run by hand, it has no name of what it grants, and the next migrate up grants again.
    INSERT INTO badged.granted_roles VALUES (role_name, kind, coalesce(current_setting('badged.granted_as', true), ''))
    ON CONFLICT (role) DO UPDATE SET kind = excluded.kind, granted_as = excluded.granted_as;
END
$$;
