-- What operators have done, what runs for them, and what processes count: for
-- the admin API and page. No badge depends on any of it.

-- +goose Up

-- The audit trail. A row is there before the action is begun, and has its end
-- once that is known: what has none was under way when its process ended.
CREATE TABLE badged.audit (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    who       text        NOT NULL,
    via       text        NOT NULL CHECK (via IN ('api', 'cli')),
    action    text        NOT NULL,
    arguments json        NOT NULL,
    ended_at  timestamptz,
    result    json,
    error     text        CHECK (error IS NULL OR ended_at IS NOT NULL)
);

-- Rebuilds and verifications that operators have started. Whoever runs one holds
-- the advisory lock of its id: what is said to run and whose lock nobody has was
-- interrupted.
CREATE TABLE badged.jobs (
    id               integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text        NOT NULL CHECK (kind IN ('rebuild', 'verification')),
    arguments        json        NOT NULL,
    started_by       text        NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    process          text        NOT NULL,
    state            text        NOT NULL DEFAULT 'running'
                                 CHECK (state IN ('running', 'done', 'failed', 'canceled', 'interrupted')),
    progress         json        NOT NULL DEFAULT '{}',
    cancel_requested boolean     NOT NULL DEFAULT false,
    ended_at         timestamptz CHECK ((ended_at IS NULL) = (state = 'running')),
    result           json,
    error            text
);

-- What each process has counted since it started, every few seconds; kept for an
-- hour. Nothing is lost with it, so a crash of Postgres may empty it.
CREATE UNLOGGED TABLE badged.samples (
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    process    text        NOT NULL,
    started_at timestamptz NOT NULL,
    roles      text[]      NOT NULL,
    counted    json        NOT NULL,
    PRIMARY KEY (at, process, started_at)
);
