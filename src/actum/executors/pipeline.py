"""One action from request to result. Only this module knows the order of the stages.

    request -> snapshot and digest -> gate -> action, executor, versions, capabilities -> limits
            -> PENDING -> child -> output limits, secrets -> digest -> final record -> result

Every arrow fails closed and every end is on record. Nothing starts before its PENDING record is on
the disk, and no result is handed out before its final record is. Payload and output stay in memory;
whoever made the call gets the value from the session's own channel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from actum.contract.canonical import NotCanonical
from actum.contract.model import Json
from actum.contract.outcome import ActionStatus
from actum.errors import ContractInvalid, EvidenceUnavailable, Fault
from actum.evidence.audit import Decision
from actum.executors import plans, runs
from actum.executors.actions import DEFAULT_PROFILE, Action, Profile
from actum.executors.gate import Question, decide
from actum.executors.model import ActionRequest, ActionResult, Version
from actum.executors.pool import Child, Pool
from actum.executors.reasons import Reason
from actum.executors.records import Journal, Judged
from actum.executors.registry import Registered, Registry
from actum.executors.secrets import leaks
from actum.executors.shape import Snapshot, TooDeep
from actum.executors.values import SessionValues
from actum.value import replace, value

Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


@value
class _Ready:
    """Everything that is settled before an executor starts."""

    request: ActionRequest
    executor: Registered
    snapshot: Snapshot
    timeout_s: float


class Pipeline:
    def __init__(
        self,
        *,
        registry: Registry,
        journal: Journal,
        pool: Pool,
        values: SessionValues,
        clock: Clock = _now,
    ) -> None:
        self.registry = registry
        self.values = values
        self._journal = journal
        self._pool = pool
        self._clock = clock
        self._lock = Lock()
        self._codes: dict[str, bytes] = {}  # compiled from reviewed bytes; in memory only
        self._changed: set[str] = set()  # bytes whose declaration did not stay as reviewed

    def act(
        self, request: ActionRequest | Mapping[str, Any], *, profile: str = DEFAULT_PROFILE
    ) -> ActionResult:
        """Carry out one action, or say why not. Only a malformed request raises."""
        if not isinstance(request, ActionRequest):
            request = self._parsed(request)
        return self._act(request, profile, None, plannable=True)

    def _parsed(self, document: Mapping[str, Any]) -> ActionRequest:
        try:
            return ActionRequest.parse(document)
        except ContractInvalid:
            self._journal.malformed(_digest_of(document))
            raise

    def _act(
        self, request: ActionRequest, profile: str, within_s: float | None, *, plannable: bool
    ) -> ActionResult:
        began = time.monotonic()
        snapshot, unreadable = _snapshot(request)
        known = self.registry.actions
        action = known.actions.get(request.action)
        executor = self.registry.executors.get(action.executor_id) if action else None
        blank = ActionResult(
            action=request.action,
            executor_id=action.executor_id if action else "",
            executor_version=executor.declared.version if executor else "",
            status=ActionStatus.PENDING,
            reason_codes=(Reason.EXECUTION_ATTEMPT.value,),
            input_digest=snapshot.digest if snapshot else "",
            output_digest=None,
            trace_id=request.trace_id,
            ts_utc=self._clock(),
        )
        asked = known.profiles.get(profile)
        verdict = decide(Question(action=request.action, profile=asked, actions=known))
        judged = Judged(
            verdict=verdict,
            profile=asked or Profile(profile_id=profile, allow=()),
            actions_fingerprint=known.fingerprint,
        )
        objection = verdict.reason_codes[0] if verdict.decision is Decision.DENY else unreadable
        if not objection and action is not None:
            objection = self._objection(action, executor, snapshot, plannable=plannable)
        if objection or executor is None or snapshot is None:
            return self._refuse(judged, blank, str(objection), began)
        timeout_s = executor.declared.limits.timeout_ms / 1000
        ready = _Ready(
            request=request,
            executor=executor,
            snapshot=snapshot,
            timeout_s=timeout_s if within_s is None else min(timeout_s, within_s),
        )
        try:
            pending = self._journal.open(judged, blank)
        except EvidenceUnavailable:
            # Nothing may run unrecorded, and nothing did.
            return _ended(blank, ActionStatus.BLOCKED, Reason.AUDIT_LOG_FAILED)
        return self._run(ready, blank, pending, began, profile)

    def _objection(
        self,
        action: Action,
        executor: Registered | None,
        snapshot: Snapshot | None,
        *,
        plannable: bool,
    ) -> Reason | None:
        """The first thing that stands between this action and its start."""
        if action.action_version is None:
            return Reason.ACTION_VERSION_MISSING
        if Version.parse(action.action_version) is None:
            return Reason.ACTION_VERSION_INVALID
        if executor is None:
            return Reason.EXECUTOR_NOT_FOUND
        if executor.source_sha256 in self._changed:
            return Reason.EXECUTOR_CHANGED
        if executor.declared.executor_id == plans.EXECUTOR_ID and not plannable:
            return Reason.PLAN_VALIDATION  # a plan in a plan would have no bound
        if not _new_enough(executor.declared.version, action.min_executor_version):
            return Reason.EXECUTOR_VERSION_INCOMPATIBLE
        declared = {name.upper() for name in executor.declared.capabilities}
        if not set(action.required_capabilities) <= declared:
            return Reason.EXECUTOR_CAPABILITY_MISSING
        if snapshot is not None and snapshot.exceeds(executor.declared.limits):
            return Reason.LIMIT_EXCEEDED
        return None

    def _refuse(
        self, judged: Judged, blank: ActionResult, reason: str, began: float
    ) -> ActionResult:
        result = _ended(blank, ActionStatus.BLOCKED, reason)
        try:
            self._journal.refuse(judged, result, _since(began))
        except EvidenceUnavailable:
            return _ended(blank, ActionStatus.BLOCKED, reason, Reason.AUDIT_LOG_FAILED)
        return result

    def _run(
        self, ready: _Ready, blank: ActionResult, pending: int, began: float, profile: str
    ) -> ActionResult:
        """From the PENDING record to the final one."""
        used: list[Child] = []
        try:
            result, output = self._perform(ready, blank, began, profile, used)
        except Fault as fault:
            failed = _ended(blank, ActionStatus.FAILED, fault.code)
            self._journal.close(pending, failed, _since(began))
            raise
        except BaseException:
            cancelled = _ended(blank, ActionStatus.BLOCKED, "CANCELLED")
            self._journal.close(pending, cancelled, _since(began))
            raise
        try:
            self._journal.close(pending, result, _since(began))
        except EvidenceUnavailable:
            # The result is withheld, value and digest: its record does not exist.
            return _ended(blank, ActionStatus.BLOCKED, Reason.AUDIT_LOG_FAILED)
        finally:
            for child in used:
                self._pool.retire(child)
            self._pool.refill()
        if output is not None:
            self.values.keep(output.digest, output.encoded)
        return result

    def _perform(
        self, ready: _Ready, blank: ActionResult, began: float, profile: str, used: list[Child]
    ) -> tuple[ActionResult, Snapshot | None]:
        child, ran = self._in_child(ready)
        used.append(child)
        if ran.note is not None:
            self.values.keep_note(blank.trace_id, ran.note)
        if ran.reason is Reason.EXECUTOR_CHANGED:
            self._changed.add(ready.executor.source_sha256)
        is_plan = ready.executor.declared.executor_id == plans.EXECUTOR_ID
        if ran.status is not ActionStatus.SUCCESS:
            more = (Reason.PLAN_VALIDATION,) if is_plan and ran.note is not None else ()
            return _ended(blank, ran.status, ran.reason or "", *more), None
        output = ran.output
        if is_plan and output is not None:
            carried = self._carry_out(ready, output, began + ready.timeout_s, profile)
            if carried.status is not ActionStatus.SUCCESS:
                return _ended(blank, carried.status, *carried.reason_codes), None
            output = Snapshot.of(carried.output)
            if output.exceeds(ready.executor.declared.limits):
                return _ended(blank, ActionStatus.BLOCKED, Reason.LIMIT_EXCEEDED), None
        if output is not None and leaks(ready.snapshot.value, output.value):
            return _ended(blank, ActionStatus.BLOCKED, Reason.SECRET_IN_OUTPUT), None
        digest = output.digest if output else None
        done = replace(blank, status=ActionStatus.SUCCESS, reason_codes=(), output_digest=digest)
        return done, output

    def _in_child(self, ready: _Ready) -> tuple[Child, runs.Ran]:
        declared = ready.executor.declared
        frame = runs.call_frame(
            self._code(ready.executor),
            declared,
            action=ready.request.action,
            payload=ready.snapshot.encoded,
            trace_id=ready.request.trace_id,
            at=ready.request.ts_utc,
        )
        return runs.run(self._pool, frame, declared, ready.timeout_s)

    def _carry_out(
        self, ready: _Ready, plan: Snapshot, deadline: float, profile: str
    ) -> plans.CarriedOut:
        def act(step: ActionRequest, left_s: float) -> tuple[ActionResult, Json]:
            result = self._act(step, profile, left_s, plannable=False)
            succeeded = result.status is ActionStatus.SUCCESS
            return result, self.values.value(result) if succeeded else None

        return plans.carry_out(plan.value, ready.request, deadline, act)

    def _code(self, executor: Registered) -> bytes:
        with self._lock:
            found = self._codes.get(executor.source_sha256)
        if found is None:
            found = runs.compile_source(self._pool, executor.source)
            with self._lock:
                self._codes[executor.source_sha256] = found
        return found


def _digest_of(document: object) -> str:
    """Of whatever came, if it has one."""
    try:
        return Snapshot.of(document).digest
    except (NotCanonical, TooDeep):
        return ""


def _snapshot(request: ActionRequest) -> tuple[Snapshot | None, Reason | None]:
    try:
        return Snapshot.of(dict(request.payload)), None
    except NotCanonical:
        return None, Reason.NON_JSON_PAYLOAD
    except TooDeep:
        return None, Reason.LIMIT_EXCEEDED


def _new_enough(version: str, minimum: str | None) -> bool:
    if minimum is None:
        return True
    found, wanted = Version.parse(version), Version.parse(minimum)
    return found is not None and wanted is not None and found >= wanted


def _ended(blank: ActionResult, status: ActionStatus, *reasons: str) -> ActionResult:
    return replace(blank, status=status, reason_codes=tuple(str(each) for each in reasons))


def _since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
