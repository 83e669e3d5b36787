"""One action from request to result. Only this module knows the order of the stages.

    request -> snapshot and digest -> gate -> action, executor, versions, capabilities -> limits
            -> PENDING -> child -> output limits, secrets -> digest -> final record -> result

Every stage fails closed and every end is recorded. Nothing starts before its PENDING record is
durable, and no result is returned before its final record is. Payload and output stay in memory;
the caller reads the value from the session (`values`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from actum.contract.canonical import NotCanonical
from actum.contract.model import Json
from actum.contract.outcome import ActionStatus
from actum.errors import ContractInvalid, EvidenceUnavailable, Fault
from actum.evidence.records.audit import Decision
from actum.executors import plans, runs
from actum.executors.action_records import Journal, Judged
from actum.executors.actions import DEFAULT_PROFILE, Profile
from actum.executors.child_frames import Request
from actum.executors.executor_registry import Registered, Registry
from actum.executors.gate import Question, decide
from actum.executors.model import ActionRequest, ActionResult
from actum.executors.payload_secrets import any_in, has_none, secrets_of
from actum.executors.pool import Child, Pool
from actum.executors.reasons import Reason
from actum.executors.shape import Snapshot, TooDeep
from actum.executors.values import SessionValues
from actum.value import replace, value

Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


@value(frozen=False)
class _Call:
    """One call that may start: its settled facts, and the child that serves it."""

    request: ActionRequest
    executor: Registered
    snapshot: Snapshot
    profile: str
    blank: ActionResult  #: the template of every result of this call
    began: float
    timeout_s: float
    frame: Request | None = None
    child: Child | None = None


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
        self._codes: dict[str, bytes] = {}  # compiled from reviewed bytes; in memory only
        self._changed: set[str] = set()  # bytes whose declaration did not stay as reviewed

    def act(
        self, request: ActionRequest | Mapping[str, Any], *, profile: str = DEFAULT_PROFILE
    ) -> ActionResult:
        """Run one action, or return why not. Only a malformed request raises."""
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
        route = self.registry.routes.get(request.action)
        executor = route.executor if route else None
        blank = ActionResult(
            action=request.action,
            executor_id=route.action.executor_id if route else "",
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
        if not objection and route is not None:
            objection = route.objection or self._objection(executor, snapshot, plannable=plannable)
        if objection or executor is None or snapshot is None:
            return self._refuse(judged, blank, str(objection), began)
        timeout_s = executor.declared.limits.timeout_ms / 1000
        return self._start(
            judged,
            _Call(
                request=request,
                executor=executor,
                snapshot=snapshot,
                profile=profile,
                blank=blank,
                began=began,
                timeout_s=timeout_s if within_s is None else min(timeout_s, within_s),
            ),
        )

    def _objection(
        self, executor: Registered | None, snapshot: Snapshot | None, *, plannable: bool
    ) -> Reason | None:
        """The first reason why this call may not start."""
        if executor is None:
            return Reason.EXECUTOR_NOT_FOUND
        if executor.source_sha256 in self._changed:
            return Reason.EXECUTOR_CHANGED
        if executor.declared.executor_id == plans.EXECUTOR_ID and not plannable:
            return Reason.PLAN_VALIDATION  # nested plans would be unbounded
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

    def _start(self, judged: Judged, call: _Call) -> ActionResult:
        code = self._codes.get(call.executor.source_sha256)
        if code is not None:
            call.frame = _frame(call, code)
            # While PENDING is written, a child may have the code, but nothing of the request.
            call.child = self._pool.prepare(call.frame[0])
        try:
            result = self._recorded(judged, call)
        except BaseException:
            if call.child is not None:
                call.child.discard()
            raise
        if call.child is not None:
            self._pool.retire(call.child)
        self._pool.refill()
        return result

    def _recorded(self, judged: Judged, call: _Call) -> ActionResult:
        try:
            pending = self._journal.open(judged, call.blank)
        except EvidenceUnavailable:
            # Nothing may run without a record, and nothing ran.
            if call.child is not None:
                call.child.discard()
                call.child = None
            return _ended(call.blank, ActionStatus.BLOCKED, Reason.AUDIT_LOG_FAILED)
        return self._run(call, pending)

    def _run(self, call: _Call, pending: int) -> ActionResult:
        """From the PENDING record to the final one."""
        blank = call.blank
        try:
            result, output = self._perform(call)
        except Fault as fault:
            failed = _ended(blank, ActionStatus.FAILED, fault.code)
            self._journal.close(pending, failed, _since(call.began))
            raise
        except BaseException:
            cancelled = _ended(blank, ActionStatus.BLOCKED, "CANCELLED")
            self._journal.close(pending, cancelled, _since(call.began))
            raise
        try:
            self._journal.close(pending, result, _since(call.began))
        except EvidenceUnavailable:
            # Value and digest of the result are withheld: it has no record.
            return _ended(blank, ActionStatus.BLOCKED, Reason.AUDIT_LOG_FAILED)
        if output is not None:
            self.values.keep(output.digest, output.encoded)
        return result

    def _perform(self, call: _Call) -> tuple[ActionResult, Snapshot | None]:
        blank, declared = call.blank, call.executor.declared
        frame = call.frame or _frame(call, self._compiled(call.executor))
        call.child, ran = runs.run(self._pool, frame, declared, call.timeout_s, call.child)
        if ran.note is not None:
            self.values.keep_note(blank.trace_id, ran.note)
        if ran.reason is Reason.EXECUTOR_CHANGED:
            self._changed.add(call.executor.source_sha256)
        is_plan = declared.executor_id == plans.EXECUTOR_ID
        if ran.status is not ActionStatus.SUCCESS:
            more = (Reason.PLAN_VALIDATION,) if is_plan and ran.note is not None else ()
            return _ended(blank, ran.status, ran.reason or "", *more), None
        output = ran.output
        if is_plan and output is not None:
            carried = self._carry_out(call, output)
            if carried.status is not ActionStatus.SUCCESS:
                return _ended(blank, carried.status, *carried.reason_codes), None
            output = Snapshot.of(carried.output)
            if output.exceeds(declared.limits):
                return _ended(blank, ActionStatus.BLOCKED, Reason.LIMIT_EXCEEDED), None
        if output is not None and _leaks(call.snapshot, output):
            return _ended(blank, ActionStatus.BLOCKED, Reason.SECRET_IN_OUTPUT), None
        digest = output.digest if output else None
        done = replace(blank, status=ActionStatus.SUCCESS, reason_codes=(), output_digest=digest)
        return done, output

    def _carry_out(self, call: _Call, plan: Snapshot) -> plans.CarriedOut:
        def act(step: ActionRequest, left_s: float) -> tuple[ActionResult, Json]:
            result = self._act(step, call.profile, left_s, plannable=False)
            succeeded = result.status is ActionStatus.SUCCESS
            return result, self.values.value(result) if succeeded else None

        return plans.carry_out(plan.value, call.request, call.began + call.timeout_s, act)

    def _compiled(self, executor: Registered) -> bytes:
        # Two threads at once compile the same bytes to the same code.
        code = self._codes.get(executor.source_sha256)
        if code is None:
            code = runs.compile_source(self._pool, executor.source)
            self._codes[executor.source_sha256] = code
        return code


def _frame(call: _Call, code: bytes) -> Request:
    return runs.call_frame(
        code,
        call.executor.declared,
        action=call.request.action,
        payload=call.snapshot.encoded,
        trace_id=call.request.trace_id,
        at=call.request.ts_utc,
    )


def _digest_of(document: object) -> str:
    """The digest of any document, if it has one."""
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


def _leaks(payload: Snapshot, output: Snapshot) -> bool:
    if has_none(payload.encoded.decode()):
        return False
    hidden = secrets_of(payload.value)
    return bool(hidden) and any_in(hidden, output.value)


def _ended(blank: ActionResult, status: ActionStatus, *reasons: str) -> ActionResult:
    return replace(blank, status=status, reason_codes=tuple(str(each) for each in reasons))


def _since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
