"""A whole execution to write down: each test changes what it is about."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from actum.capture.model import Capture, Collected, Enforced, Exited, Stream
from actum.contract.call import (
    AdapterRef,
    Check,
    CheckResult,
    EffectivePolicy,
    Executable,
    NetworkPolicy,
    Plan,
    ToolRef,
    TraceContext,
    ValidationProof,
)
from actum.contract.canonical import blake3_bytes, sha256_bytes, sha256_json
from actum.contract.limits import Limits
from actum.contract.model import Contract, Inputs, Metadata, RunnerKind
from actum.contract.outcome import Outcome, TraceOutcome
from actum.evidence.executions import Executions
from actum.evidence.ledger import Ledger
from actum.evidence.receipts import Receipts
from actum.evidence.records.evidence_record import EvidenceRecords
from actum.evidence.records.facts import ExecutionFacts, Intent, Opened, Stage
from actum.evidence.records.trace import LIFECYCLE, Recorded, Trace, TraceEvent
from actum.evidence.rotation import Rotated, rotate
from actum.evidence.verify.findings import Finding
from actum.evidence.verify.receipt_verifier import Verifier
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.keys import Keyring

STARTED = datetime(2031, 4, 5, 6, 7, 8, tzinfo=UTC)


@dataclass(frozen=True)
class House:
    """The evidence rooms of one home, as wiring would furnish them."""

    home: Path
    database: Database
    blobs: BlobStore
    keyring: Keyring
    ledger: Ledger
    receipts: Receipts
    records: EvidenceRecords
    executions: Executions
    verifier: Verifier

    @classmethod
    def open(cls, home: Path) -> House:
        database = Database.open(home)
        blobs = BlobStore(home, database)
        keyring = Keyring.open(home, create=True)
        receipts = Receipts(database, home)
        return cls(
            home=home,
            database=database,
            blobs=blobs,
            keyring=keyring,
            ledger=Ledger(
                database=database, blobs=blobs, signer=keyring.signer, redact=lambda data: data
            ),
            receipts=receipts,
            records=EvidenceRecords(database),
            executions=Executions(database),
            verifier=Verifier(
                database=database, blobs=blobs, receipts=receipts, trusted=keyring.trusted
            ),
        )

    def audit(self) -> list[bytes]:
        return [row[0] for row in self.database.rows("SELECT record FROM audit ORDER BY seq")]

    def rotate(self) -> Rotated:
        """Another key from here on, believed beside all that the home believes by now."""
        return rotate(
            self.ledger,
            root=self.home.parent,
            home=self.home,
            approving=Keyring.open(self.home).approving,
            at=datetime.now(UTC),
        )

    def execute(self, **changes: Any) -> ExecutionFacts:
        """Open and seal one execution, as the engine does."""
        intent = make_intent()
        opened = self.ledger.write_ahead(intent)
        facts = make_facts(intent, opened=opened, **changes)
        self.ledger.seal(facts, RESULT)
        return facts


def tamper(house: House, statement: str, *values: Any) -> None:
    """What someone with the file and a SQLite shell can do who then tidies up."""
    house.database.rows("SELECT 1")  # a read writes everything out first
    connection = house.database._connection
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA foreign_keys = OFF")
    try:
        assert connection.execute(statement, values).rowcount > 0
    finally:
        for _, sql in triggers:
            connection.execute(sql)


def bad(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.subject, finding.check) for finding in findings if not finding.passed]


RESULT = {"outcome": "SUCCEEDED", "result": {"exit_code": 0}}


def make_contract(**changes: Any) -> Contract:
    values: dict[str, Any] = {
        "execution_id": str(uuid.uuid4()),
        "tool_id": "TL-003",
        "adapter_id": "ADP-001",
        "inputs": Inputs(command="rg", arguments=("needle",)),
        "metadata": Metadata(
            requested_by="agent:test", requested_at=STARTED, purpose="look for a needle"
        ),
    }
    return Contract(**values | changes)


def make_policy(**changes: Any) -> EffectivePolicy:
    values: dict[str, Any] = {
        "runner": RunnerKind.LOCAL,
        "limits": Limits(
            timeout_ms=30_000, memory_mb=512, cpu_cores=1, max_children=10, allow_fork=True
        ),
        "read": ("/srv/repo",),
        "write": (),
        "deny": (),
        "protect": (),
        "network": NetworkPolicy(enabled=False, allow=(), deny=(), outbound=()),
        "environment": ("LANG",),
        "approvals": ("AG-01:pin",),
    }
    return EffectivePolicy(**values | changes)


CHECKS = tuple(
    Check(code=code, result=CheckResult.PASSED)
    for code in ("IV-01", "IV-02", "IV-03", "IV-04", "IV-05")
)


def make_plan(contract: Contract, policy: EffectivePolicy, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "tool": ToolRef(tool_id="TL-003", name="ripgrep", version="14.1.0", pin="a" * 64),
        "adapter": AdapterRef(
            adapter_id="ADP-001", version="1.0.0", kind="cli", status="active", sha256="b" * 64
        ),
        "argv": ("rg", "--json", "needle"),
        "environment": {"LANG": "C.UTF-8"},
        "working_directory": "/srv/repo",
        "stdin": b"",
        "policy": policy,
        "proof": ValidationProof(
            call_sha256="c" * 64,
            policy_sha256=policy.sha256,
            checks=CHECKS,
            executable=Executable(path="/usr/bin/rg", sha256="d" * 64, device=1, inode=2),
        ),
        "output_files": (),
        "artifacts": (),
        "trace": TraceContext(trace_id=TRACE_ID, execution_id=contract.execution_id),
    }
    return Plan(**values | changes)


TRACE_ID = "00000000-0000-4000-8000-000000000001"
ENFORCED = tuple(
    Enforced(limit=limit, requested=requested, mechanism=mechanism, enforced=True, peak=peak)
    for limit, requested, mechanism, peak in (
        ("timeout_ms", "30000", "timer", 12),
        ("memory_mb", "512", "memory cgroup", 7_340_032),
        ("cpu_cores", "1", "cpu cgroup", None),
        ("max_children", "10", "pids cgroup", 1),
    )
)


def make_intent(contract: Contract | None = None, **changes: Any) -> Intent:
    contract = contract or make_contract()
    policy = changes.pop("policy", None) or make_policy()
    plan = changes.pop("plan", None) or make_plan(contract, policy)
    values: dict[str, Any] = {
        "contract": contract,
        "contract_sha256": sha256_json({"contract": contract.execution_id}),
        "identity_sha256": "e" * 64,
        "trace_id": TRACE_ID,
        "session": "ses-1",
        "input_digest": "f" * 64,
        "started_at": STARTED,
        "tool": plan.tool,
        "adapter": plan.adapter,
        "policy": policy,
        "checks": CHECKS,
        "proof": plan.proof,
        "plan": plan,
        "foreseen": ENFORCED,
    }
    return Intent(**values | changes)


def make_stream(content: bytes) -> Stream:
    return Stream(kept=content, total_bytes=len(content), sha256=sha256_bytes(content))


def make_file(path: str, content: bytes, kind: str = "artifact") -> Collected:
    return Collected(
        name=path.rpartition("/")[2],
        path=path,
        kind=kind,
        content=content,
        sha256=sha256_bytes(content),
        blake3=blake3_bytes(content),
    )


def make_capture(**changes: Any) -> Capture:
    values: dict[str, Any] = {
        "ending": Exited(0),
        "stdout": make_stream(b"found it\n"),
        "stderr": make_stream(b""),
        "enforcement": ENFORCED,
        "duration_ms": 12,
    }
    return Capture(**values | changes)


def make_events(execution_id: str, **data: Any) -> tuple[Recorded, ...]:
    trace = Trace()
    for kind in LIFECYCLE:
        trace.emit(
            TraceEvent(
                event_type=kind,
                trace_id=TRACE_ID,
                execution_id=execution_id,
                attempt=1,
                tool_id="TL-003",
                runner_type="local",
                container_id=None,
                duration_ms=0,
                outcome=TraceOutcome.SUCCESS if kind is LIFECYCLE[-1] else None,
                data=data,
            )
        )
    return trace.events


def make_facts(intent: Intent, **changes: Any) -> ExecutionFacts:
    values: dict[str, Any] = {
        **{field.name: getattr(intent, field.name) for field in fields(Intent)},
        "outcome": Outcome.SUCCEEDED,
        "reason_codes": (),
        "ended_at": STARTED + timedelta(milliseconds=12),
        "duration_ms": 12,
        "opened": Opened(pending_seq=2),
        "capture": make_capture(),
        "exit_code": 0,
        "output_digest": "9" * 64,
        "events": make_events(intent.execution_id),
        "leftovers": (),
    }
    return ExecutionFacts(**values | changes)


def make_refusal(contract: Contract | None = None, **changes: Any) -> ExecutionFacts:
    """Refused by the registry: no tool, no policy, nothing ran."""
    intent = Intent(
        contract=contract or make_contract(tool_id="TL-999"),
        contract_sha256="1" * 64,
        identity_sha256="2" * 64,
        trace_id=TRACE_ID,
        session="ses-1",
        input_digest="3" * 64,
        started_at=STARTED,
    )
    return make_facts(
        intent,
        **{
            "outcome": Outcome.REJECTED,
            "reason_codes": ("TOOL_UNKNOWN",),
            "refused_at": Stage.REGISTRY,
            "opened": None,
            "capture": None,
            "exit_code": None,
            "output_digest": None,
            "events": (),
            "leftovers": None,
            **changes,
        },
    )
