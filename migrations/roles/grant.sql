-- Grants a role the rights of its kind in the schema badged, of the log or of an outbox, and
-- revokes all its other rights there. Run it as the owner of the schema:
--
--     SELECT set_config('badged.role', 'chat', false), set_config('badged.kind', 'publisher', false);
--     \i grant.sql
--
-- If a migration adds a table that a server writes, add the table here.
DO $$
DECLARE
    role_name CONSTANT text := current_setting('badged.role');
    kind      CONSTANT text := current_setting('badged.kind');
    outbox    CONSTANT boolean := to_regclass('badged.outbox') IS NOT NULL;
    kinds     CONSTANT text[] := CASE WHEN outbox
        THEN '{relay,publisher}' ELSE '{server,publisher,consumer,reader}' END;
    publishes CONSTANT text :=
        'GRANT EXECUTE ON FUNCTION badged.publish(jsonb), badged.publish_batch(jsonb) TO';
    reads     CONSTANT text[] := ARRAY[
        'GRANT SELECT ON ALL TABLES IN SCHEMA badged TO',
        'GRANT EXECUTE ON FUNCTION badged.partition_of(text), badged.archive_proves(text, text),
            badged.covers(text, text), badged.paths_of(text), badged.words_of_user(text),
            badged.closest_level(badged.level, text, jsonb), badged.words(text),
            badged.words(bytea, text, text[]), badged.log_names(bytea),
            badged.log_names_of(text[]) TO'
    ];
    -- The statements for a kind, in which pNN stands for each partition.
    statements CONSTANT text[] := CASE kind
        WHEN 'relay' THEN ARRAY[
            'GRANT SELECT ON badged.outbox_migrations TO',
            'GRANT SELECT, DELETE ON badged.outbox TO',
            'GRANT SELECT, INSERT, DELETE ON badged.outbox_refused TO',
            'GRANT INSERT (transaction_id, published_at, payload) ON badged.outbox TO' -- to retry
        ]
        WHEN 'publisher' THEN CASE WHEN outbox THEN ARRAY[publishes] ELSE ARRAY[
            publishes,
            'GRANT SELECT ON badged.settings, badged.partitions TO',
            -- Postgres sets the other columns: the position of an event and its era.
            'GRANT INSERT (uuid, payload, metadata, events) ON badged.events_pNN TO'
        ] END
        WHEN 'consumer' THEN ARRAY[
            'GRANT SELECT ON badged.settings TO',
            'GRANT SELECT ON badged.events_pNN, badged.events_pNN_offsets TO',
            'GRANT INSERT (consumer_group, offset_acked, last_processed_transaction_id),
                UPDATE (offset_acked, last_processed_transaction_id) ON badged.events_pNN_offsets TO'
        ]
        WHEN 'reader' THEN reads || ARRAY[
            'REVOKE ALL ON badged.audit, badged.audit_ends, badged.audit_chain, badged.jobs FROM',
            -- They have tokens, secrets and the text of messages.
            'REVOKE ALL ON badged.devices, badged.alerts, badged.room_alerts, badged.webhooks,
                badged.revocation_secret FROM',
            'REVOKE ALL ON badged.devices_pNN, badged.alerts_pNN, badged.room_alerts_pNN FROM',
            -- For the lag of the notifier.
            'GRANT SELECT (events, state) ON badged.webhooks TO',
            'GRANT SELECT (user_id) ON badged.devices_pNN TO'
        ]
        WHEN 'server' THEN reads || ARRAY[
            'GRANT INSERT (uuid, payload, metadata, events, own, created_at)
                ON badged.events_pNN TO',
            -- To insert is for the consumer groups of badged tail.
            'GRANT INSERT (consumer_group, offset_acked, last_processed_transaction_id),
                UPDATE (offset_acked, last_processed_transaction_id, pending, folded)
                ON badged.events_pNN_offsets TO',
            'GRANT INSERT, UPDATE ON badged.users_pNN, badged.conversations_pNN,
                badged.rooms_pNN TO',
            'GRANT INSERT, DELETE ON badged.dedup_blocks_pNN, badged.dedup_pages_pNN TO',
            'GRANT INSERT, UPDATE, DELETE ON badged.paths_pNN, badged.room_chunks_pNN,
                badged.room_marks_pNN, badged.devices_pNN, badged.alerts_pNN, badged.room_rounds_pNN,
                badged.room_alerts_pNN, badged.webhook_queue_pNN TO',
            'GRANT INSERT ON badged.dedup_generations, badged.settled_letters TO',
            'GRANT INSERT, UPDATE ON badged.late_folds, badged.ingest_positions, badged.ingest_places,
                badged.tail_partitions, badged.timeline_ends TO',
            'GRANT INSERT, DELETE ON badged.dead_letters, badged.dedup_filters,
                badged.rebuilt_partitions, badged.samples TO',
            'GRANT INSERT, UPDATE, DELETE ON badged.devices, badged.alerts, badged.room_rounds,
                badged.room_alerts, badged.webhooks, badged.webhook_queue, badged.dedup_runs,
                badged.healed_users, badged.expiry_progress, badged.jobs, badged.hints,
                badged.revocations, badged.key_quotas TO',
            'GRANT UPDATE ON badged.partitions, badged.notifier_partitions,
                badged.revocation_counter TO',
            'GRANT UPDATE ON badged.stale_partitions TO', -- to lock them
            'GRANT DELETE ON badged.erased_revocations TO',
            'GRANT USAGE ON SEQUENCE badged.target_generations TO',
            'GRANT INSERT (who, via, action, arguments) ON badged.audit TO',
            'GRANT INSERT (audit_id, result, error) ON badged.audit_ends TO',
            'GRANT EXECUTE ON FUNCTION badged.refuse_batch(text), badged.refuse_missing(bigint, bigint),
                badged.pending_at(xid8, pg_snapshot, xid8, xid8[]), badged.index_log(integer),
                badged.move_late(integer, bigint[], bigint[], bigint, bigint),
                badged.extend_log(integer, interval, bigint), badged.bury_unissued(integer),
                badged.complete_move(integer, uuid, uuid), badged.settle_stale_partition(integer),
                badged.give_up_partition(integer, text, bigint, timestamptz),
                badged.create_staging_tables(integer), badged.swap_staging_tables(integer),
                badged.drop_staging_tables(integer), badged.analyze_tables(integer, text),
                badged.refuse_revoked(text[], timestamptz[]), badged.settle_webhooks(integer),
                badged.tell_of_users(integer, text[]) TO'
        ]
    END;
    partitions text[] := '{}';
    statement  text;
    partition  text;
BEGIN
    IF kind <> ALL (kinds) THEN
        RAISE EXCEPTION 'the kind of a role is one of %, not %', array_to_string(kinds, ', '), kind
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF EXISTS (SELECT FROM pg_namespace WHERE nspname = 'badged' AND pg_get_userbyid(nspowner) = role_name) THEN
        RAISE EXCEPTION 'role % owns the schema badged', role_name
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    FOREACH statement IN ARRAY '{TABLES,SEQUENCES,FUNCTIONS}'::text[] LOOP
        EXECUTE format('REVOKE ALL ON ALL %s IN SCHEMA badged FROM %I', statement, role_name);
    END LOOP;
    EXECUTE format('REVOKE ALL ON SCHEMA badged FROM %I', role_name);
    EXECUTE format('GRANT USAGE ON SCHEMA badged TO %I', role_name);
    IF NOT outbox THEN
        partitions := ARRAY(
            SELECT badged.partition_table('', p) FROM badged.existing_partitions() AS p);
    END IF;
    FOREACH statement IN ARRAY statements LOOP
        FOREACH partition IN ARRAY
            CASE WHEN statement LIKE '%\_pNN%' THEN partitions ELSE '{""}' END
        LOOP
            EXECUTE format('%s %I', replace(statement, '_pNN', partition), role_name);
        END LOOP;
    END LOOP;

    -- The grants of an outbox are not recorded. Run by hand, the script does not know what it
    -- grants, and the next migrate up grants again.
    IF NOT outbox THEN
        INSERT INTO badged.granted_roles
        VALUES (role_name, kind, coalesce(current_setting('badged.granted_as', true), ''))
        ON CONFLICT (role) DO UPDATE SET kind = excluded.kind, granted_as = excluded.granted_as;
    END IF;
END
$$;
