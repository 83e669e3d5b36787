"""The schema of `.actum/actum.db`, as the list of steps that lead to it.

Step N brings a file from version N-1 to N, by statements or a function. A step that has shipped is
never edited: a change is a new step at the end. Triggers reject changes and removals of audit
records and receipts. They guard against mistakes in this code; against others, signatures do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from actum.store.merkle import Edge

#: Statements, or a function that runs inside the step's transaction.
Part = str | Callable[[sqlite3.Cursor], None]

_FIRST = """
CREATE TABLE executions (
    execution_id    TEXT PRIMARY KEY,
    identity_sha256 TEXT NOT NULL,
    contract_sha256 TEXT NOT NULL,
    trace_id        TEXT NOT NULL,
    session         TEXT NOT NULL,
    tool_id         TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('PENDING', 'FINAL')),
    outcome         TEXT,
    result_json     TEXT,
    receipt_id      TEXT,
    started_at      TEXT NOT NULL,
    ended_at        TEXT,
    owner           TEXT,
    opening         TEXT,
    CHECK (state = 'PENDING' OR (outcome IS NOT NULL AND receipt_id IS NOT NULL))
) STRICT;
CREATE INDEX executions_pending ON executions (started_at) WHERE state = 'PENDING';
CREATE INDEX executions_by_session ON executions (session, started_at);

CREATE TABLE trace_events (
    seq          INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL REFERENCES executions (execution_id),
    receipt_id   TEXT NOT NULL,
    trace_id     TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    event_type   TEXT NOT NULL,
    ts           TEXT NOT NULL,
    tool_id      TEXT NOT NULL,
    runner_type  TEXT NOT NULL,
    container_id TEXT,
    duration_ms  INTEGER NOT NULL,
    outcome      TEXT,
    data         TEXT NOT NULL
) STRICT;
CREATE INDEX trace_events_by_execution ON trace_events (execution_id, seq);
CREATE INDEX trace_events_by_trace ON trace_events (trace_id, seq);

CREATE TABLE audit (
    seq       INTEGER PRIMARY KEY,
    record    BLOB NOT NULL,
    leaf_hash TEXT NOT NULL
) STRICT;

CREATE TABLE receipts (
    receipt_id   TEXT PRIMARY KEY,
    execution_id TEXT NOT NULL REFERENCES executions (execution_id),
    evidence_id  TEXT NOT NULL,
    final_seq    INTEGER NOT NULL REFERENCES audit (seq),
    envelope     TEXT NOT NULL,
    sha256       TEXT NOT NULL
) STRICT;
CREATE INDEX receipts_by_execution ON receipts (execution_id);

CREATE TABLE evidence_records (
    evidence_id  TEXT PRIMARY KEY,
    execution_id TEXT NOT NULL REFERENCES executions (execution_id),
    evidence_ref TEXT NOT NULL,
    document     TEXT NOT NULL
) STRICT;
CREATE INDEX evidence_by_execution ON evidence_records (execution_id);
CREATE INDEX evidence_by_ref ON evidence_records (evidence_ref);

CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'audit records are append-only');
END;
CREATE TRIGGER audit_is_never_removed BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'audit records are append-only');
END;
CREATE TRIGGER receipts_are_never_changed BEFORE UPDATE ON receipts BEGIN
    SELECT RAISE(ABORT, 'receipts are append-only');
END;
CREATE TRIGGER receipts_are_never_removed BEFORE DELETE ON receipts BEGIN
    SELECT RAISE(ABORT, 'receipts are append-only');
END;
CREATE TRIGGER trace_is_never_changed BEFORE UPDATE ON trace_events BEGIN
    SELECT RAISE(ABORT, 'trace events are append-only');
END;
CREATE TRIGGER evidence_is_never_changed BEFORE UPDATE ON evidence_records BEGIN
    SELECT RAISE(ABORT, 'evidence records are append-only');
END;
"""

_EXECUTORS = """
CREATE TABLE open_actions (
    pending_seq INTEGER PRIMARY KEY REFERENCES audit (seq),
    owner       TEXT NOT NULL
) STRICT;

CREATE TABLE executor_reviews (
    seq           INTEGER PRIMARY KEY,
    executor_id   TEXT,
    source_sha256 TEXT NOT NULL,
    approved      INTEGER NOT NULL CHECK (approved IN (0, 1)),
    envelope      TEXT NOT NULL
) STRICT;
CREATE INDEX executor_reviews_by_source ON executor_reviews (source_sha256, seq);

CREATE TRIGGER executor_reviews_are_never_changed BEFORE UPDATE ON executor_reviews BEGIN
    SELECT RAISE(ABORT, 'executor reviews are append-only');
END;
CREATE TRIGGER executor_reviews_are_never_removed BEFORE DELETE ON executor_reviews BEGIN
    SELECT RAISE(ABORT, 'executor reviews are append-only');
END;
"""

_TREE = """
ALTER TABLE audit ADD COLUMN nodes BLOB NOT NULL DEFAULT x'';
DROP TRIGGER audit_is_never_changed;
"""


def _grow_tree(cursor: sqlite3.Cursor) -> None:
    """Build the tree over the existing leaves; a checkpoint without a note is unsigned."""
    edge = Edge()
    for (seq,) in cursor.execute("SELECT seq FROM audit ORDER BY seq").fetchall():
        leaf = cursor.execute("SELECT leaf_hash FROM audit WHERE seq = ?", (seq,)).fetchone()[0]
        edge, nodes = edge.grown(bytes.fromhex(leaf))
        cursor.execute("UPDATE audit SET nodes = ? WHERE seq = ?", (nodes, seq))
    if edge.size:
        cursor.execute(
            "INSERT INTO checkpoints (size, number, note) VALUES (?, 0, '')", (edge.size,)
        )


_CHECKPOINTS = """
CREATE TABLE checkpoints (
    size   INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    note   TEXT NOT NULL
) STRICT;
"""

_TREE_GROWN = """
ALTER TABLE audit DROP COLUMN leaf_hash;
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'audit records are append-only');
END;
CREATE TRIGGER checkpoints_are_never_changed BEFORE UPDATE ON checkpoints BEGIN
    SELECT RAISE(ABORT, 'checkpoints are append-only');
END;
CREATE TRIGGER checkpoints_are_never_removed BEFORE DELETE ON checkpoints WHEN OLD.note <> '' BEGIN
    SELECT RAISE(ABORT, 'checkpoints are append-only');
END;
CREATE TRIGGER trace_is_never_removed BEFORE DELETE ON trace_events BEGIN
    SELECT RAISE(ABORT, 'trace events are append-only');
END;

ALTER TABLE executions ADD COLUMN pending_seq INTEGER;
UPDATE executions SET pending_seq = json_extract(opening, '$.pending_seq')
WHERE opening IS NOT NULL;

CREATE TABLE blobs (
    blake3  TEXT PRIMARY KEY,
    content BLOB NOT NULL
) STRICT;
"""

_APPROVALS = """
CREATE TABLE approvals (
    request_id   TEXT PRIMARY KEY,
    kind         TEXT NOT NULL CHECK (kind IN ('request', 'escalation')),
    gate         TEXT NOT NULL,
    call_sha256  TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'denied', 'used', 'noted')),
    requested_at TEXT NOT NULL,
    expires_at   TEXT NOT NULL,
    document     TEXT NOT NULL,
    decided_by   TEXT,
    decided_at   TEXT,
    rationale    TEXT,
    decision_seq INTEGER REFERENCES audit (seq),
    used_by      TEXT,
    CHECK (state IN ('pending', 'noted') OR decision_seq IS NOT NULL)
) STRICT;
CREATE INDEX approvals_by_call ON approvals (call_sha256, gate);
CREATE INDEX approvals_by_time ON approvals (requested_at);

CREATE TRIGGER approvals_are_decided_once BEFORE UPDATE ON approvals
WHEN NOT (OLD.state = 'pending' AND NEW.state IN ('approved', 'denied'))
    AND NOT (OLD.state = 'approved' AND NEW.state = 'used') BEGIN
    SELECT RAISE(ABORT, 'an approval is decided once and used once');
END;
CREATE TRIGGER approvals_are_never_removed BEFORE DELETE ON approvals BEGIN
    SELECT RAISE(ABORT, 'approvals are append-only');
END;
"""

_WORK = """
CREATE TABLE work_runs (
    run_id       TEXT PRIMARY KEY,
    item_id      TEXT NOT NULL,
    item         TEXT NOT NULL,
    agent_sha256 TEXT NOT NULL,
    workspace    TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('OPEN', 'FINAL')),
    status       TEXT CHECK (status IN ('success', 'failure', 'denied', 'timeout')),
    run_hash     TEXT,
    before_hash  TEXT,
    after_hash   TEXT,
    receipt_id   TEXT,
    result       TEXT,
    started_at   TEXT NOT NULL,
    ended_at     TEXT,
    owner        TEXT NOT NULL,
    CHECK (state = 'OPEN' OR (status IS NOT NULL AND receipt_id IS NOT NULL))
) STRICT;
CREATE INDEX work_runs_open ON work_runs (started_at) WHERE state = 'OPEN';
CREATE INDEX work_runs_by_hash ON work_runs (run_hash);
CREATE INDEX work_runs_by_place ON work_runs (workspace, status);

CREATE TABLE work_receipts (
    receipt_id TEXT PRIMARY KEY,
    run_id     TEXT NOT NULL UNIQUE REFERENCES work_runs (run_id),
    final_seq  INTEGER NOT NULL REFERENCES audit (seq),
    envelope   TEXT NOT NULL,
    sha256     TEXT NOT NULL
) STRICT;

CREATE TRIGGER work_runs_are_closed_once BEFORE UPDATE ON work_runs WHEN OLD.state = 'FINAL' BEGIN
    SELECT RAISE(ABORT, 'a work run is closed once');
END;
CREATE TRIGGER work_runs_are_never_removed BEFORE DELETE ON work_runs BEGIN
    SELECT RAISE(ABORT, 'work runs are append-only');
END;
CREATE TRIGGER work_receipts_are_never_changed BEFORE UPDATE ON work_receipts BEGIN
    SELECT RAISE(ABORT, 'work receipts are append-only');
END;
CREATE TRIGGER work_receipts_are_never_removed BEFORE DELETE ON work_receipts BEGIN
    SELECT RAISE(ABORT, 'work receipts are append-only');
END;
"""

_SERVER_TOOLS = """
CREATE TABLE server_tools (
    pin         TEXT NOT NULL,
    server      TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    tools       TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    PRIMARY KEY (pin, server)
) STRICT;
CREATE TRIGGER server_tools_are_never_changed BEFORE UPDATE ON server_tools BEGIN
    SELECT RAISE(ABORT, 'what a server offered at first is not changed');
END;
"""

_UNFILED = """
CREATE TABLE unfiled (
    seq             INTEGER PRIMARY KEY,
    execution_id    TEXT NOT NULL,
    identity_sha256 TEXT NOT NULL,
    contract_sha256 TEXT NOT NULL,
    trace_id        TEXT NOT NULL,
    session         TEXT NOT NULL,
    tool_id         TEXT NOT NULL,
    started_at      TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('PENDING', 'FINAL')),
    outcome         TEXT,
    receipt_id      TEXT,
    ended_at        TEXT,
    evidence_id     TEXT,
    evidence_ref    TEXT,
    final_seq       INTEGER REFERENCES audit (seq),
    pending_seq     INTEGER REFERENCES audit (seq),
    sha256          TEXT,
    owner           TEXT,
    opening         TEXT,
    result_json     TEXT,
    record          TEXT,
    events          TEXT,
    envelope        TEXT
) STRICT;
CREATE TRIGGER unfiled_is_closed_once BEFORE UPDATE ON unfiled WHEN OLD.state = 'FINAL' BEGIN
    SELECT RAISE(ABORT, 'what is sealed is not changed');
END;
"""

_JOURNAL = """
INSERT INTO executions (execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id,
    state, outcome, result_json, receipt_id, started_at, ended_at, owner, opening, pending_seq)
SELECT execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id,
    state, outcome, result_json, receipt_id, started_at, ended_at, owner, opening, pending_seq
FROM unfiled WHERE true ORDER BY seq
ON CONFLICT (execution_id) DO UPDATE SET identity_sha256 = excluded.identity_sha256,
    contract_sha256 = excluded.contract_sha256, trace_id = excluded.trace_id,
    session = excluded.session, tool_id = excluded.tool_id, state = excluded.state,
    outcome = excluded.outcome, result_json = excluded.result_json,
    receipt_id = excluded.receipt_id, started_at = excluded.started_at,
    ended_at = excluded.ended_at, owner = excluded.owner, opening = excluded.opening,
    pending_seq = excluded.pending_seq;
INSERT INTO receipts (receipt_id, execution_id, evidence_id, final_seq, envelope, sha256)
SELECT receipt_id, execution_id, evidence_id, final_seq, envelope, sha256
FROM unfiled WHERE state = 'FINAL' ORDER BY final_seq;
INSERT INTO evidence_records (evidence_id, execution_id, evidence_ref, document)
SELECT evidence_id, execution_id, evidence_ref, record
FROM unfiled WHERE state = 'FINAL' ORDER BY final_seq;
INSERT INTO trace_events (receipt_id, trace_id, execution_id, attempt, event_type, ts, tool_id,
    runner_type, container_id, duration_ms, outcome, data)
SELECT unfiled.receipt_id, json_extract(event.value, '$.trace_id'),
    json_extract(event.value, '$.execution_id'), json_extract(event.value, '$.attempt'),
    json_extract(event.value, '$.event_type'), json_extract(event.value, '$.ts'),
    json_extract(event.value, '$.tool_id'), json_extract(event.value, '$.runner_type'),
    json_extract(event.value, '$.container_id'), json_extract(event.value, '$.duration_ms'),
    json_extract(event.value, '$.outcome'), json_extract(event.value, '$.data')
FROM unfiled, json_each(unfiled.events) AS event
WHERE unfiled.state = 'FINAL' ORDER BY unfiled.final_seq, event.key;
DROP TABLE unfiled;
"""

_DECIDERS = """
ALTER TABLE approvals ADD COLUMN decided_uid INTEGER;
ALTER TABLE approvals ADD COLUMN decided_user TEXT;
"""

_BOUND_ROWS = """
CREATE TRIGGER evidence_is_never_removed BEFORE DELETE ON evidence_records BEGIN
    SELECT RAISE(ABORT, 'evidence records are append-only');
END;
CREATE TRIGGER server_tools_are_never_removed BEFORE DELETE ON server_tools BEGIN
    SELECT RAISE(ABORT, 'what a server offered at first is not removed');
END;
"""

_STANDING = """
CREATE TABLE standing_approvals (
    approval_id   TEXT PRIMARY KEY,
    tool_id       TEXT NOT NULL,
    pin           TEXT NOT NULL,
    binding       TEXT NOT NULL,
    hosts         TEXT NOT NULL,
    paths         TEXT NOT NULL,
    uses          INTEGER,
    used          INTEGER NOT NULL,
    until         TEXT,
    granted_at    TEXT NOT NULL,
    granted_by    TEXT NOT NULL,
    granted_uid   INTEGER NOT NULL,
    granted_user  TEXT NOT NULL,
    granted_role  TEXT NOT NULL,
    granted_why   TEXT NOT NULL,
    revoked_at    TEXT,
    revoked_by    TEXT,
    revoked_uid   INTEGER,
    revoked_user  TEXT,
    revoked_role  TEXT,
    revoked_why   TEXT,
    last_used_by  TEXT,
    last_seq      INTEGER NOT NULL REFERENCES audit (seq),
    CHECK (uses IS NOT NULL OR until IS NOT NULL),
    CHECK (used >= 0 AND (uses IS NULL OR used <= uses))
) STRICT;
CREATE INDEX standing_approvals_by_tool ON standing_approvals (tool_id);

CREATE TRIGGER standing_approvals_only_end BEFORE UPDATE ON standing_approvals
WHEN OLD.revoked_at IS NOT NULL OR NEW.used < OLD.used OR NEW.last_seq <= OLD.last_seq BEGIN
    SELECT RAISE(ABORT, 'a standing approval is used and revoked, and never renewed');
END;
CREATE TRIGGER standing_approvals_are_never_removed BEFORE DELETE ON standing_approvals BEGIN
    SELECT RAISE(ABORT, 'standing approvals are append-only');
END;
"""

_RUNS = """
CREATE TABLE agent_runs (
    run_id            TEXT PRIMARY KEY,
    status            TEXT NOT NULL CHECK (status IN ('queued', 'running', 'correcting',
        'optimizing', 'validating', 'complete', 'failed', 'cancelled')),
    metadata          TEXT NOT NULL,
    revision          INTEGER NOT NULL,
    seal              TEXT,
    source            TEXT NOT NULL,
    source_sha256     TEXT NOT NULL,
    plan              TEXT,
    plan_sha256       TEXT,
    epoch             INTEGER NOT NULL,
    fence             INTEGER NOT NULL,
    worker            TEXT,
    queue             TEXT NOT NULL,
    priority          INTEGER NOT NULL,
    workspace         TEXT NOT NULL,
    base_state        TEXT,
    current_state     TEXT,
    validation_status TEXT CHECK (validation_status IN ('passed', 'failed')),
    forked_from       TEXT,
    resumed_at        INTEGER NOT NULL,
    requested_by      TEXT NOT NULL,
    trace_id          TEXT NOT NULL,
    cancel_by         TEXT,
    error_code        TEXT,
    error_details     TEXT,
    blocked_code      TEXT,
    created_at        TEXT NOT NULL,
    started_at        TEXT,
    ended_at          TEXT,
    receipt_id        TEXT,
    CHECK ((revision = 0) = (seal IS NULL))
) STRICT;
CREATE INDEX agent_runs_by_status ON agent_runs (status, priority, created_at);
CREATE UNIQUE INDEX one_run_per_folder ON agent_runs (workspace)
    WHERE status IN ('running', 'correcting', 'optimizing', 'validating');

CREATE TABLE run_contracts (
    run_id   TEXT NOT NULL REFERENCES agent_runs (run_id),
    revision INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    seal     TEXT NOT NULL,
    cause    TEXT NOT NULL CHECK (cause IN ('created', 'attached', 'overridden', 'forked')),
    by_whom  TEXT NOT NULL,
    at       TEXT NOT NULL,
    PRIMARY KEY (run_id, revision)
) STRICT;

CREATE TABLE agent_steps (
    run_id         TEXT NOT NULL REFERENCES agent_runs (run_id),
    step_index     INTEGER NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('plan', 'item', 'light', 'heavy', 'correction')),
    item_id        TEXT,
    attempt        INTEGER NOT NULL,
    revision       INTEGER NOT NULL,
    epoch          INTEGER NOT NULL,
    fence          INTEGER NOT NULL,
    worker         TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('started', 'ended', 'adopted')),
    status         TEXT CHECK (status IN ('success', 'failure', 'denied', 'timeout',
        'interrupted', 'passed', 'failed')),
    codes          TEXT NOT NULL,
    work_run_id    TEXT,
    base_state     TEXT,
    after_state    TEXT,
    receipt_id     TEXT,
    receipt_sha256 TEXT,
    signature      TEXT,
    blocking       INTEGER,
    document       TEXT,
    started_at     TEXT NOT NULL,
    ended_at       TEXT,
    PRIMARY KEY (run_id, step_index),
    CHECK ((state = 'started') = (status IS NULL))
) STRICT;

CREATE TABLE run_decisions (
    run_id        TEXT NOT NULL REFERENCES agent_runs (run_id),
    decision_hash TEXT NOT NULL,
    document      TEXT NOT NULL,
    at            TEXT NOT NULL,
    PRIMARY KEY (run_id, decision_hash)
) STRICT;

CREATE TRIGGER agent_runs_are_never_removed BEFORE DELETE ON agent_runs BEGIN
    SELECT RAISE(ABORT, 'runs are append-only');
END;
CREATE TRIGGER run_contracts_are_never_changed BEFORE UPDATE ON run_contracts BEGIN
    SELECT RAISE(ABORT, 'contracts of runs are append-only');
END;
CREATE TRIGGER run_contracts_are_never_removed BEFORE DELETE ON run_contracts BEGIN
    SELECT RAISE(ABORT, 'contracts of runs are append-only');
END;
CREATE TRIGGER agent_steps_end_once BEFORE UPDATE ON agent_steps WHEN OLD.state <> 'started' BEGIN
    SELECT RAISE(ABORT, 'a step ends once');
END;
CREATE TRIGGER agent_steps_are_never_removed BEFORE DELETE ON agent_steps BEGIN
    SELECT RAISE(ABORT, 'steps are append-only');
END;
CREATE TRIGGER run_decisions_are_never_changed BEFORE UPDATE ON run_decisions BEGIN
    SELECT RAISE(ABORT, 'decisions are append-only');
END;
CREATE TRIGGER run_decisions_are_never_removed BEFORE DELETE ON run_decisions BEGIN
    SELECT RAISE(ABORT, 'decisions are append-only');
END;
"""

_RUN_RECEIPTS = """
CREATE TABLE run_receipts (
    receipt_id TEXT PRIMARY KEY,
    run_id     TEXT NOT NULL REFERENCES agent_runs (run_id),
    sha256     TEXT NOT NULL,
    envelope   TEXT NOT NULL
) STRICT;
CREATE INDEX run_receipts_by_run ON run_receipts (run_id);

CREATE TRIGGER run_receipts_are_never_changed BEFORE UPDATE ON run_receipts BEGIN
    SELECT RAISE(ABORT, 'receipts of runs are append-only');
END;
CREATE TRIGGER run_receipts_are_never_removed BEFORE DELETE ON run_receipts BEGIN
    SELECT RAISE(ABORT, 'receipts of runs are append-only');
END;
"""

#: The next run of a folder is found without a sort, however many wait.
_WAITING_RUNS = """
CREATE INDEX waiting_runs ON agent_runs
    (workspace, priority DESC, created_at, run_id, queue, epoch, blocked_code)
    WHERE status = 'queued';
"""

MIGRATIONS: tuple[tuple[Part, ...], ...] = (
    (_FIRST,),
    (_TREE, _CHECKPOINTS, _grow_tree, _TREE_GROWN),
    (_EXECUTORS,),
    (_APPROVALS,),
    (_WORK,),
    (_SERVER_TOOLS,),
    (_UNFILED,),
    (_JOURNAL,),  # `actum.journal` replaces the table `unfiled`
    (_DECIDERS,),
    (_BOUND_ROWS,),  # audit records bind every row from here on (`evidence.records.bound_rows`)
    (_STANDING,),
    (_RUNS,),
    (_RUN_RECEIPTS,),
    (_WAITING_RUNS,),
)
