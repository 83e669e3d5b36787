"""A project whose shell may ask for more than the project: what needs a person's decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from actum import Result, Runtime
from actum.capture.model import Capture, Enforced, Exited, Stream
from actum.contract.call import EffectivePolicy, Plan
from actum.contract.canonical import sha256_bytes
from actum.contract.model import RunnerKind
from actum.contract.outcome import TraceOutcome
from actum.errors import Fault
from actum.evidence.records.audit import Decision
from actum.evidence.records.trace import Emit, EventType
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.runners.base import Cancel, Capability, OnOutput, Permit
from actum.runners.lifecycle import Lifecycle
from actum.settings import load
from actum.store.keys import Keyring

NOTHING = Stream(kept=b"", total_bytes=0, sha256=sha256_bytes(b""))


class ScriptedRunner:
    """Starts nothing: ends every plan with `code`, and remembers what it was given."""

    kind = RunnerKind.LOCAL

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.broken = False
        self.plans: list[Plan] = []

    def capabilities(self) -> tuple[Capability, ...]:
        return ()

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        if self.broken:
            raise Fault("The host went away.")
        return ()

    def takes_overlay(self, plan: Plan, grant: str) -> bool:
        return True

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        if permit is not None:
            permit()
        self.plans.append(plan)
        lifecycle = Lifecycle(plan, self.kind, emit)
        for step in (
            EventType.TOOL_RUN_START,
            EventType.TOOL_RUN_RESOURCE_APPLIED,
            EventType.TOOL_RUN_OUTPUT_CAPTURED,
        ):
            lifecycle.reached(step, {})
        lifecycle.reached(EventType.TOOL_RUN_END, {}, TraceOutcome.SUCCESS)
        return Capture(ending=Exited(self.code), stdout=NOTHING, stderr=NOTHING, duration_ms=1)

    def rest(self) -> None:
        pass

    def close(self) -> None:
        pass


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 15, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **amount: float) -> None:
        self.now += timedelta(**amount)


class Project:
    """`shell` with a scope that reaches beyond the project; elevated asks for `/etc` files."""

    def __init__(self, folder: Path, scope: Sequence[str] = (".", "/etc")) -> None:
        self.root = folder.resolve() / "project"
        create(self.root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
        file = self.root / "tools/shell/tool.yaml"
        tool = yaml.safe_load(file.read_text())
        tool["scope"] |= {"filesystem": list(scope), "network": "off"}  # YAML 1.1 reads a boolean
        tool["permissions"]["filesystem"] = {"read": list(scope), "write": list(scope)}
        file.write_text(yaml.safe_dump(tool))
        self._approve()
        self.work = self.root / "work"
        self.work.mkdir(mode=0o755)
        self.clock = Clock()
        self.runner = ScriptedRunner()

    def _approve(self) -> None:
        keyring = Keyring.open(self.root / ".actum")
        approve(self.root, keyring, "shell", by="user:maker", evidence="test", date="2026-11-15")

    def approve_change(self, text: str) -> None:
        """The tool's folder has changed, and the change is approved."""
        with (self.root / "tools/shell/README.md").open("a") as file:
            file.write(f"\n{text}\n")
        self._approve()

    def open(self, *, real: bool = False, clock: Callable[[], datetime] | None = None) -> Runtime:
        settings = load(self.root / ".actum", {"LOGNAME": "asker"})
        if real:
            return Runtime(settings)
        runners = {RunnerKind.LOCAL: self.runner}
        return Runtime(settings, runners=runners, clock=clock or self.clock)


def elevated(*read: str, **more: Any) -> dict[str, Any]:
    fields = {"sandbox.filesystem.level": "elevated", "sandbox.filesystem.read": [".", *read]}
    return fields | {f"sandbox.filesystem.{name}": value for name, value in more.items()}


def request_ids(result: Result) -> list[str]:
    assert result.reason_codes == ("APPROVAL_REQUIRED",), result.violations
    return [violation.value for violation in result.violations]


def decide_all(runtime: Runtime, result: Result, decision: Decision = Decision.ALLOW) -> list[str]:
    found = request_ids(result)
    for request_id in found:
        runtime.approvals.decide(request_id, decision, by="user:boss", why="looked at it")
    return found
