"""The schema of a fleet's database: tables, rules and rights, applied by its owner.

`actum` holds the ledger, with the tables and triggers of the embedded one. `actum_engine` holds the
queue (Procrastinate). Three roles without a login: `actum_read` reads the ledger; `actum_submit`
also adds runs of its own, and cancels and continues those; `actum_worker` carries runs out. A
member of `actum_submit` has no right in the schema of the queue: `actum.enqueue_run` puts a run
that is queued into it.
"""

from __future__ import annotations

from actum.errors import Refused
from actum.runs.ledger.postgres_link import (
    Connection,
    PostgresLink,
    executed,
    rows_of,
    run_script,
)

#: One migration at a time in a database.
_MIGRATING = 0x616374756D

_ROLES = """
DO $$
DECLARE wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['actum_read', 'actum_submit', 'actum_worker'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- roles belong to the whole server, which may have another fleet
        END;
    END LOOP;
END $$;
"""

_TABLES = """
CREATE TABLE actum.agent_runs (
    run_id            text COLLATE "C" PRIMARY KEY,
    status            text NOT NULL CHECK (status IN ('queued', 'running', 'correcting',
        'optimizing', 'validating', 'complete', 'failed', 'cancelled')),
    metadata          text NOT NULL,
    revision          bigint NOT NULL,
    seal              text,
    source            text NOT NULL,
    source_sha256     text NOT NULL,
    plan              text,
    plan_sha256       text,
    epoch             bigint NOT NULL,
    fence             bigint NOT NULL,
    worker            text,
    queue             text NOT NULL,
    priority          bigint NOT NULL,
    workspace         text COLLATE "C" NOT NULL,
    base_state        text,
    current_state     text,
    validation_status text CHECK (validation_status IN ('passed', 'failed')),
    forked_from       text,
    resumed_at        bigint NOT NULL,
    requested_by      text NOT NULL,
    trace_id          text NOT NULL,
    cancel_by         text,
    error_code        text,
    error_details     text,
    blocked_code      text,
    created_at        text COLLATE "C" NOT NULL,
    started_at        text,
    ended_at          text,
    receipt_id        text,
    -- The project whose folder it is, by the name of its audit log; set by each connection.
    home              text NOT NULL DEFAULT current_setting('actum.home'),
    owner             text NOT NULL DEFAULT session_user,
    CHECK ((revision = 0) = (seal IS NULL))
);
CREATE INDEX agent_runs_by_status ON actum.agent_runs (status, priority, created_at);
CREATE INDEX agent_runs_by_time ON actum.agent_runs (created_at);
CREATE UNIQUE INDEX one_run_per_folder ON actum.agent_runs (home, workspace)
    WHERE status IN ('running', 'correcting', 'optimizing', 'validating');
CREATE INDEX waiting_runs ON actum.agent_runs
    (workspace, priority DESC, created_at, run_id) WHERE status = 'queued';

CREATE TABLE actum.run_contracts (
    run_id   text COLLATE "C" NOT NULL REFERENCES actum.agent_runs (run_id),
    revision bigint NOT NULL,
    metadata text NOT NULL,
    seal     text NOT NULL,
    cause    text NOT NULL CHECK (cause IN ('created', 'attached', 'overridden', 'forked')),
    by_whom  text NOT NULL,
    at       text NOT NULL,
    PRIMARY KEY (run_id, revision)
);

CREATE TABLE actum.agent_steps (
    run_id         text COLLATE "C" NOT NULL REFERENCES actum.agent_runs (run_id),
    step_index     bigint NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('plan', 'item', 'light', 'heavy', 'correction')),
    item_id        text,
    attempt        bigint NOT NULL,
    revision       bigint NOT NULL,
    epoch          bigint NOT NULL,
    fence          bigint NOT NULL,
    worker         text NOT NULL,
    state          text NOT NULL CHECK (state IN ('started', 'ended', 'adopted')),
    status         text CHECK (status IN ('success', 'failure', 'denied', 'timeout',
        'interrupted', 'passed', 'failed')),
    codes          text NOT NULL,
    work_run_id    text,
    base_state     text,
    after_state    text,
    receipt_id     text,
    receipt_sha256 text,
    signature      text,
    blocking       bigint,
    document       text,
    started_at     text NOT NULL,
    ended_at       text,
    PRIMARY KEY (run_id, step_index),
    CHECK ((state = 'started') = (status IS NULL))
);

CREATE TABLE actum.run_decisions (
    run_id        text COLLATE "C" NOT NULL REFERENCES actum.agent_runs (run_id),
    decision_hash text COLLATE "C" NOT NULL,
    document      text NOT NULL,
    at            text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, decision_hash)
);

CREATE TABLE actum.run_receipts (
    -- SQLite has it without being asked: the order in which rows were written.
    rowid      bigint GENERATED ALWAYS AS IDENTITY,
    receipt_id text COLLATE "C" PRIMARY KEY,
    run_id     text COLLATE "C" NOT NULL REFERENCES actum.agent_runs (run_id),
    sha256     text NOT NULL,
    envelope   text NOT NULL
);
CREATE INDEX run_receipts_by_run ON actum.run_receipts (run_id);

-- The audit record of each write: in which project's log, its number and its digest.
CREATE TABLE actum.run_log (
    log           text COLLATE "C" NOT NULL,
    seq           bigint NOT NULL,
    run_id        text COLLATE "C" NOT NULL REFERENCES actum.agent_runs (run_id),
    record_sha256 text NOT NULL,
    PRIMARY KEY (log, seq)
);
CREATE INDEX run_log_by_run ON actum.run_log (run_id);

CREATE TABLE actum.worker_nodes (
    node    text PRIMARY KEY,
    owner   text NOT NULL,
    host    text NOT NULL,
    version text NOT NULL,
    queues  text[] NOT NULL,
    beat_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX worker_nodes_by_owner ON actum.worker_nodes (owner);
"""

_RULES = """
CREATE FUNCTION actum.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END $$;

CREATE FUNCTION actum.steps_end_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state <> 'started' THEN
        RAISE EXCEPTION 'a step ends once';
    END IF;
    RETURN NEW;
END $$;

-- The changes of a run by its owner, who is no worker: cancel, continue.
CREATE FUNCTION actum.owners_ask() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_has_role(session_user, 'actum_worker', 'MEMBER')
        OR NEW.status = OLD.status
        OR (OLD.status = 'queued' AND NEW.status = 'cancelled')
        OR (OLD.status IN ('failed', 'cancelled') AND NEW.status = 'queued'
            AND NEW.epoch = OLD.epoch + 1)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'only a worker moves a run from % to %', OLD.status, NEW.status
        USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE TRIGGER owners_ask BEFORE UPDATE ON actum.agent_runs
    FOR EACH ROW EXECUTE FUNCTION actum.owners_ask();
CREATE TRIGGER steps_end_once BEFORE UPDATE ON actum.agent_steps
    FOR EACH ROW EXECUTE FUNCTION actum.steps_end_once();
DO $$
DECLARE wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['agent_runs', 'agent_steps', 'run_contracts', 'run_decisions',
        'run_receipts', 'run_log'] LOOP
        EXECUTE format('CREATE TRIGGER never_removed BEFORE DELETE ON actum.%I'
            ' FOR EACH ROW EXECUTE FUNCTION actum.refuse_change()', wanted);
        EXECUTE format('CREATE TRIGGER never_emptied BEFORE TRUNCATE ON actum.%I'
            ' FOR EACH STATEMENT EXECUTE FUNCTION actum.refuse_change()', wanted);
        IF wanted NOT IN ('agent_runs', 'agent_steps') THEN
            EXECUTE format('CREATE TRIGGER never_changed BEFORE UPDATE ON actum.%I'
                ' FOR EACH ROW EXECUTE FUNCTION actum.refuse_change()', wanted);
        END IF;
    END LOOP;
END $$;
"""

_ENQUEUE = """
-- Puts a queued run into the queue: once for an epoch, and in one folder one after the other.
-- Everything is read from the run's row, so a caller can ask for nothing else.
CREATE FUNCTION actum.enqueue_run(wanted text, wanted_epoch bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = actum_engine, pg_temp AS $$
DECLARE
    run actum.agent_runs%ROWTYPE;
    folder text;
BEGIN
    SELECT * INTO run FROM actum.agent_runs
        WHERE run_id = wanted AND epoch = wanted_epoch AND status = 'queued';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- Of each queue: a job waits for older ones with its lock, also for those that no worker of
    -- its own queue takes. The ledger refuses the second claim.
    folder := encode(sha256(convert_to(
        run.home || chr(10) || run.workspace || chr(10) || run.queue, 'UTF8')), 'hex');
    IF EXISTS (SELECT 1 FROM procrastinate_jobs WHERE lock = folder
        AND status IN ('todo', 'doing') AND queueing_lock = run.run_id || '#' || run.epoch) THEN
        RETURN;
    END IF;
    PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW(
        actum.engine_queue(run.queue, run.home), 'actum_run', run.priority::integer, folder,
        run.run_id || '#' || run.epoch,
        jsonb_build_object('run_id', run.run_id, 'epoch', run.epoch, 'queue', run.queue,
            'priority', run.priority),
        NULL::timestamptz)::procrastinate_job_to_defer_v1]);
END $$;

-- The name of a queue of one project: its workers have the folders of its runs.
CREATE FUNCTION actum.engine_queue(queue text, home text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT queue || '@' || substr(encode(sha256(convert_to(home, 'UTF8')), 'hex'), 1, 12)
$$;

-- Queued runs that the queue has lost.
CREATE FUNCTION actum.enqueue_lost() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = actum_engine, pg_temp AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(7306375) THEN
        RETURN;
    END IF;
    PERFORM actum.enqueue_run(run_id, epoch) FROM actum.agent_runs AS run
        WHERE status = 'queued' AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs AS job
            WHERE job.queueing_lock = run.run_id || '#' || run.epoch
            AND job.status IN ('todo', 'doing'))
        ORDER BY created_at, run_id;
END $$;
"""

#: A row belongs to the login that added its run.
_OWN = (
    "EXISTS (SELECT 1 FROM actum.agent_runs AS run WHERE run.run_id = {table}.run_id"
    " AND run.owner = session_user)"
)
_ADDED = ("run_contracts", "agent_steps", "run_decisions", "run_receipts", "run_log")

_RIGHTS = """
REVOKE ALL ON SCHEMA actum, actum_engine FROM PUBLIC;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA actum FROM PUBLIC;
GRANT USAGE ON SCHEMA actum TO actum_read, actum_submit, actum_worker;
GRANT SELECT ON ALL TABLES IN SCHEMA actum TO actum_read, actum_submit, actum_worker;
GRANT EXECUTE ON FUNCTION actum.enqueue_run(text, bigint) TO actum_submit, actum_worker;
GRANT EXECUTE ON FUNCTION actum.engine_queue(text, text), actum.enqueue_lost() TO actum_worker;

GRANT INSERT ON actum.agent_runs, actum.run_contracts, actum.agent_steps, actum.run_decisions,
    actum.run_receipts, actum.run_log TO actum_submit, actum_worker;
GRANT UPDATE ON actum.agent_runs, actum.agent_steps TO actum_worker;
GRANT UPDATE (status, metadata, revision, seal, queue, epoch, worker, cancel_by, error_code,
    error_details, blocked_code, ended_at, validation_status, resumed_at, receipt_id)
    ON actum.agent_runs TO actum_submit;
GRANT INSERT, UPDATE, DELETE ON actum.worker_nodes TO actum_worker;

GRANT USAGE ON SCHEMA actum_engine TO actum_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA actum_engine TO actum_worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA actum_engine TO actum_worker;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA actum_engine FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA actum_engine TO actum_worker;

ALTER TABLE actum.agent_runs ENABLE ROW LEVEL SECURITY;
CREATE POLICY reads ON actum.agent_runs FOR SELECT
    TO actum_read, actum_submit, actum_worker USING (true);
CREATE POLICY carries_out ON actum.agent_runs TO actum_worker USING (true) WITH CHECK (true);
CREATE POLICY submits ON actum.agent_runs FOR INSERT TO actum_submit
    WITH CHECK (owner = session_user AND status = 'queued' AND worker IS NULL AND fence = 0);
CREATE POLICY asks ON actum.agent_runs FOR UPDATE TO actum_submit
    USING (owner = session_user) WITH CHECK (owner = session_user);
"""

_RIGHTS_OF_TABLE = """
ALTER TABLE actum.{table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY reads ON actum.{table} FOR SELECT
    TO actum_read, actum_submit, actum_worker USING (true);
CREATE POLICY carries_out ON actum.{table} TO actum_worker USING (true) WITH CHECK (true);
CREATE POLICY submits ON actum.{table} FOR INSERT TO actum_submit WITH CHECK ({own}{more});
"""

_VERSIONS = """
CREATE SCHEMA IF NOT EXISTS actum;
CREATE TABLE IF NOT EXISTS actum.schema_versions (
    version    bigint PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
"""


def _first(engine_schema: str) -> str:
    rights = "".join(
        _RIGHTS_OF_TABLE.format(
            table=table,
            own=_OWN.format(table=table),
            more=" AND state = 'adopted'" if table == "agent_steps" else "",
        )
        for table in _ADDED
    )
    engine = f"CREATE SCHEMA actum_engine;\nSET LOCAL search_path = actum_engine;\n{engine_schema}"
    return (
        "\n".join(
            (_ROLES, _TABLES, _RULES, engine, "SET LOCAL search_path = actum;", _ENQUEUE, _RIGHTS)
        )
        + rights
    )


#: In order; each is applied once, whole or not at all.
MIGRATIONS = (_first,)


def migrate(link: PostgresLink, engine_schema: str) -> int:
    """Bring a database to the newest version; returns how many migrations were applied."""

    def work(connection: Connection) -> int:
        with connection.transaction():
            # Held until the commit: a second migration waits and finds nothing left.
            rows_of(connection, "SELECT pg_advisory_xact_lock(?)", (_MIGRATING,))
            run_script(connection, _VERSIONS)
            done = version_in(connection)
            if done > len(MIGRATIONS):
                raise Refused(
                    "RUNS_STORE_NEWER",
                    f"The database has version {done} of the ledger; this program knows"
                    f" {len(MIGRATIONS)}.",
                    remedy="Nothing was changed. Upgrade Actum.",
                )
            for number, migration in enumerate(MIGRATIONS[done:], done + 1):
                run_script(connection, migration(engine_schema))
                executed(
                    connection, "INSERT INTO actum.schema_versions (version) VALUES (?)", (number,)
                )
            return len(MIGRATIONS) - done

    return link.run(work)


def version_in(connection: Connection) -> int:
    sql = "SELECT coalesce(max(version), 0) FROM actum.schema_versions"
    return int(rows_of(connection, sql, ())[0][0])
