"""Approvals: a call that needs a person's decision leaves a request; the decision serves it once.

A request is bound to the digest of exactly one call under exactly one policy. Ask for the same
again and the decision is found; change anything and it is not. Another person than the requester
decides it. It expires, and is used up in the same transaction that lets the execution start: of two
that try, one is refused, and a crash before the start leaves it unused.

The reason a person gives stays in this store; the audit log holds its digest. A row that says
"approved" counts only together with the signed record of that decision. Each request, decision and
use has an audit record in the same transaction, which binds the whole row (`evidence.bound_rows`).
The inbox stores the call itself, under the digest that a decision is bound to, while the request is
open.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from actum.approvals.approval_call import BoundCall, opened
from actum.approvals.decider import require_fit
from actum.contract.approvers import Approvers, Role, person
from actum.contract.canonical import sha256_bytes
from actum.contract.ids import new_id
from actum.contract.model import Contract, Json
from actum.contract.os_user import OsUser, os_user
from actum.errors import Refused, VerificationFailed, Violation
from actum.evidence.log import Log, Page
from actum.evidence.records.audit import VERSION, Decision, Kind, closed
from actum.evidence.records.bound_rows import ROWS, bound, bound_now, differing, row_of
from actum.evidence.records.trace import rfc3339
from actum.policy.gates import (
    ANY_NAME,
    ELEVATED,
    FIRST_USE,
    GOVERNING_CHANGES,
    NETWORK,
    SCOPE,
    WRITE_OUTSIDE,
    ApprovalNeeded,
    Granted,
)
from actum.policy.standing_cover import as_bounds
from actum.store.database import Database
from actum.store.inbox import Inbox
from actum.value import value

VALID_FOR = timedelta(hours=1)
#: Asking again does not make changes again that wait for a decision.
_VALID_FOR = {GOVERNING_CHANGES: timedelta(days=3_650)}
#: The gate of an escalation: a tool was denied something, and a person should check why.
EXIT_126 = "EXIT-126"

_TYPES = {
    NETWORK: "network",
    WRITE_OUTSIDE: "file",
    ELEVATED: "permission",
    GOVERNING_CHANGES: "file",
}
_POLL_S = 0.2
_TABLE = "approvals"


class State(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"
    NOTED = "noted"  #: an escalation, which asks for nothing
    EXPIRED = "expired"  #: undecided or unused for too long; computed, never stored


_NO_REASONS: Mapping[ApprovalNeeded, str] = {}


class ApprovalRequired(Refused):
    """There is no decision yet about `needed`, for `call`.

    `reasons` says of a need why no standing approval covers it.
    """

    def __init__(
        self,
        needed: tuple[ApprovalNeeded, ...],
        call: BoundCall,
        reasons: Mapping[ApprovalNeeded, str] = _NO_REASONS,
    ) -> None:
        super().__init__(
            "APPROVAL_REQUIRED",
            "Nobody has approved this.",
            violations=tuple(
                _violation(need, "", f"Ask for it with `actum exec`. {reasons.get(need, '')}")
                for need in needed
            ),
        )
        self.needed = needed
        self.call = call
        self.reasons = reasons


@value
class Request:
    """One entry of the inbox."""

    request_id: str
    kind: str  #: request | escalation
    gate: str
    call_sha256: str
    state: State
    requested_at: str
    expires_at: str
    document: dict[str, Json]  #: requested_by, execution_id, action, context, risk_assessment
    decided_by: str | None
    decided_as: OsUser | None  #: the decider's user of the operating system
    decided_at: str | None
    rationale: str | None
    used_by: str | None  #: the execution that it served

    @property
    def need(self) -> ApprovalNeeded:
        action = self.document["action"]
        return ApprovalNeeded(
            gate=self.gate, target=action["target"], operation=action["operation"]
        )

    @property
    def requested_by(self) -> str:
        return str(self.document["requested_by"])

    @property
    def requested_as(self) -> OsUser | None:
        """The asker's user of the operating system; ``None`` in requests of earlier versions."""
        asked = self.document.get("requested_as")
        return None if asked is None else OsUser(uid=asked["uid"], name=asked["name"])

    @property
    def granted(self) -> Granted:
        return Granted(
            need=self.need,
            request_id=self.request_id,
            decided_by=self.decided_by or "",
            requested_as=self.requested_as,
            decided_as=self.decided_as,
            role=self.document.get("decided_role"),
        )


class Approvals:
    def __init__(
        self,
        database: Database,
        log: Log,
        clock: Callable[[], datetime],
        inbox: Inbox,
        user: OsUser | None = None,
        approvers: Callable[[], Approvers] = Approvers,
    ) -> None:
        """`approvers` are those that were approved, at the moment of a decision."""
        self._database = database
        self._log = log
        self._clock = clock
        self._inbox = inbox
        self._user = user or os_user()
        self.approvers = approvers

    def latest(self, *, undecided: bool = False, limit: int = 100) -> tuple[Request, ...]:
        """Newest first. `undecided` leaves out what is decided, used or expired."""
        found = self._select("ORDER BY requested_at DESC, rowid DESC LIMIT ?", (limit,))
        states = (State.PENDING, State.NOTED)
        return tuple(each for each in found if not undecided or each.state in states)

    def find(self, request_id: str) -> Request:
        found = self._select("WHERE request_id = ?", (request_id,))
        if not found:
            raise Refused(
                "APPROVAL_UNKNOWN",
                f"There is no request {request_id[:80]!r}.",
                remedy="`actum approvals list` shows the requests there are.",
            )
        return found[0]

    def call_of(self, request: Request) -> dict[str, Json] | None:
        """The call that a decision about `request` is bound to; ``None`` if it is not stored any
        more, or was changed."""
        content = self._inbox.get(request.call_sha256)
        return None if content is None else opened(content)

    def forget_closed(self) -> None:
        """Remove the calls of requests that can neither be decided nor used any more."""
        if not self._inbox.names():
            return
        # Under the write lock: the row of a request comes before its call (`ask`).
        with self._database.transaction() as cursor:
            rows = cursor.execute(
                "SELECT call_sha256 FROM approvals WHERE state IN ('pending', 'approved')"
                " AND expires_at > ?",
                (rfc3339(self._clock()),),
            ).fetchall()
            self._inbox.keep_only({row[0] for row in rows})

    def decided(
        self, call_sha256: str, needed: Iterable[ApprovalNeeded], at: datetime
    ) -> tuple[Granted, ...]:
        """Decisions for exactly this call that still hold; raises if one of them was a no."""
        grants = []
        for need in needed:
            request = self._current(call_sha256, need, at)
            if request is not None and request.state is State.DENIED:
                message = (
                    f"{need.gate}: {need.operation} of {need.target} was denied by"
                    f" {request.decided_by} (request {request.request_id})."
                )
                raise Refused("APPROVAL_DENIED", message, remedy="`actum approvals show` says why.")
            if request is not None and request.state is State.APPROVED:
                grants.append(request.granted)
        return tuple(grants)

    def ask(
        self, refusal: ApprovalRequired, contract: Contract, session: str, at: datetime
    ) -> Refused:
        """File the requests that `refusal` needs, once; the refusal that names them."""
        violations = []
        sha256 = refusal.call.sha256
        for need in refusal.needed:
            request = self._current(sha256, need, at)
            if request is None or request.state is not State.PENDING:
                request_id = self._insert(
                    "request", need, sha256, contract, session, at, State.PENDING
                )
            else:
                request_id = request.request_id
            remedy = f"`actum approvals approve {request_id} --by WHO --why TEXT`"
            more = _grant_command(need, contract.tool_id)
            remedy = f"Request {request_id}: {remedy}{more}. {refusal.reasons.get(need, '')}"
            violations.append(_violation(need, request_id, remedy))
        self._inbox.put(sha256, refusal.call.content)
        return Refused("APPROVAL_REQUIRED", refusal.message, violations=tuple(violations))

    def escalate(self, contract: Contract, session: str, at: datetime) -> None:
        """Record for people that a tool ended with 126: it was denied something."""
        need = ApprovalNeeded(gate=EXIT_126, target=contract.tool_id, operation="execute")
        self._insert("escalation", need, "", contract, session, at, State.NOTED)

    def ask_for_tool(
        self, need: ApprovalNeeded, contract: Contract, session: str, at: datetime
    ) -> str:
        """File that a tool needs an approval, or a wider one, unless that is already filed; the
        request's id. `actum tools approve` decides it, so it has no decision of its own."""
        known = self._select(
            "WHERE gate = ? AND kind = 'escalation' AND expires_at > ?", (need.gate, rfc3339(at))
        )
        found = next((each.request_id for each in known if each.need == need), None)
        return found or self._insert("escalation", need, "", contract, session, at, State.NOTED)

    def ask_to_commit(
        self, name: str, diff_sha256: str, contract: Contract, session: str, at: datetime
    ) -> str:
        """File that the changes of the transaction `name` wait for a decision. The transaction
        stores them; they are compared with this digest before they are committed."""
        need = ApprovalNeeded(gate=GOVERNING_CHANGES, target=name, operation="commit")
        return self._insert("request", need, diff_sha256, contract, session, at, State.PENDING)

    def about_commit_of(self, name: str) -> Request | None:
        """The newest request of `ask_to_commit` for the transaction `name`, in whatever state."""
        found = self._select(
            "WHERE gate = ? AND kind = 'request'"
            " AND json_extract(document, '$.action.target') = ? ORDER BY rowid DESC LIMIT 1",
            (GOVERNING_CHANGES, name),
        )
        return found[0] if found else None

    def decide(self, request_id: str, decision: Decision, *, by: str, why: str) -> Request:
        """Record a person's decision, in the store and in the signed log, in one transaction."""
        require_fit(by, why)
        at = rfc3339(self._clock())
        with self._log.page() as page:
            request = _one(page.cursor, request_id, at) or self.find(request_id)
            _require_decidable(request, by)
            key_ids = page.signer.public.ids
            role = self.approvers().require(by, Role.ACCESS, user=self._user, key_ids=key_ids)
            if decision is Decision.ALLOW and request.gate != GOVERNING_CHANGES:
                self._require_shown(request)
            state = State.APPROVED if decision is Decision.ALLOW else State.DENIED
            user = self._user
            decided = {
                "state": state.value,
                "decided_by": by,
                "decided_uid": user.uid,
                "decided_user": user.name,
                "decided_at": at,
                "rationale": why,
                "document": json.dumps({**request.document, "decided_role": role}),
            }
            row = bound(_TABLE, {**row_of(page.cursor, _TABLE, request_id), **decided})
            record = _record(request, decision, by, user, why, at)
            seq = page.append({**record, "decided_role": role, ROWS: [row]})
            page.cursor.execute(
                "UPDATE approvals SET state = ?, decided_by = ?, decided_uid = ?,"
                " decided_user = ?, decided_at = ?, rationale = ?, document = ?, decision_seq = ?"
                " WHERE request_id = ? AND state = 'pending'",
                (*decided.values(), seq, request_id),
            )
        return self.find(request_id)

    def _require_shown(self, request: Request) -> None:
        """A person can approve only a call that can be shown."""
        if self._inbox.get(request.call_sha256) is None:
            raise Refused(
                "CALL_NOT_KEPT",
                f"The call of {request.request_id} is not stored any more, or was changed.",
                remedy="Let the requester ask again: that stores the call for the same request.",
            )

    def granted_so_far(self) -> int:
        """The number of standing approvals: a new one may serve a call that waits."""
        return int((self._database.row("SELECT count(*) FROM standing_approvals") or (0,))[0])

    def wait(
        self,
        request_ids: Iterable[str],
        until: float,
        stop: Callable[[], bool] | None = None,
        *,
        granted: int | None = None,
    ) -> bool:
        """Wait until none is pending, or one is denied, or more standing approvals than `granted`
        exist. ``False``: the time ended before."""
        waiting = list(request_ids)
        while waiting:
            if granted is not None and self.granted_so_far() != granted:
                return True
            states = [self.find(request_id).state for request_id in waiting]
            if State.DENIED in states or State.PENDING not in states:
                return True
            if time.monotonic() >= until or (stop is not None and stop()):
                return False
            time.sleep(_POLL_S)
        return True

    def using(
        self, granted: tuple[Granted, ...], execution_id: str, at: datetime
    ) -> Callable[[Page], None]:
        """For the transaction that lets an execution start: use the decisions up, or raise."""
        moment = rfc3339(at)

        def use(page: Page) -> None:
            for grant in granted:
                _require_recorded(page, grant)
                used = page.cursor.execute(
                    "UPDATE approvals SET state = 'used', used_by = ? WHERE request_id = ?"
                    " AND state = 'approved' AND expires_at > ?",
                    (execution_id, grant.request_id, moment),
                )
                if used.rowcount != 1:
                    raise Refused(
                        "APPROVAL_USED",
                        f"The approval {grant.request_id} was used by another execution, or has"
                        " expired.",
                        remedy="An approval serves one execution. Ask again for a new request.",
                    )
                page.append(_event(page.cursor, grant.request_id, "used", moment))

        return use

    def _current(self, call_sha256: str, need: ApprovalNeeded, at: datetime) -> Request | None:
        """The newest request for this need of this call that is neither used up nor expired."""
        rows = self._select(
            "WHERE call_sha256 = ? AND gate = ? AND kind = 'request' AND state <> 'used'"
            " AND expires_at > ? ORDER BY rowid DESC",
            (call_sha256, need.gate, rfc3339(at)),
            at,
        )
        return next((row for row in rows if row.need == need), None)

    def _insert(
        self,
        kind: str,
        need: ApprovalNeeded,
        call_sha256: str,
        contract: Contract,
        session: str,
        at: datetime,
        state: State,
    ) -> str:
        request_id = new_id()
        document = {
            "requested_by": contract.metadata.requested_by,
            "requested_as": {"uid": self._user.uid, "name": self._user.name},
            "execution_id": contract.execution_id,
            "tool_id": contract.tool_id,
            "action": {
                "type": _TYPES.get(need.gate, "tool"),
                "target": need.target,
                "operation": need.operation,
                "justification": contract.metadata.purpose,
            },
            "context": {"session_id": session},
            "risk_assessment": _risk(need),
        }
        with self._log.page() as page:
            page.cursor.execute(
                "INSERT INTO approvals (request_id, kind, gate, call_sha256, state, requested_at,"
                " expires_at, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    request_id,
                    kind,
                    need.gate,
                    call_sha256,
                    state.value,
                    rfc3339(at),
                    rfc3339(at + _VALID_FOR.get(need.gate, VALID_FOR)),
                    json.dumps(document),
                ),
            )
            page.append(_event(page.cursor, request_id, "requested", rfc3339(at)))
        return request_id

    def _select(
        self, where: str, values: tuple[Json, ...], at: datetime | None = None
    ) -> tuple[Request, ...]:
        moment = rfc3339(at or self._clock())
        return tuple(_request(row, moment) for row in self._database.rows(_COLUMNS + where, values))


_COLUMNS = """
SELECT request_id, kind, gate, call_sha256, state, requested_at, expires_at, document, decided_by,
    decided_at, rationale, used_by, decided_uid, decided_user
FROM approvals
"""


def _one(cursor: sqlite3.Cursor, request_id: str, moment: str) -> Request | None:
    row = cursor.execute(_COLUMNS + "WHERE request_id = ?", (request_id,)).fetchone()
    return None if row is None else _request(row, moment)


def _request(row: tuple[Json, ...], moment: str) -> Request:
    state = State(row[4])
    if state in (State.PENDING, State.APPROVED) and row[6] <= moment:
        state = State.EXPIRED
    return Request(
        request_id=row[0],
        kind=row[1],
        gate=row[2],
        call_sha256=row[3],
        state=state,
        requested_at=row[5],
        expires_at=row[6],
        document=json.loads(row[7]),
        decided_by=row[8],
        decided_as=None if row[12] is None else OsUser(uid=row[12], name=row[13]),
        decided_at=row[9],
        rationale=row[10],
        used_by=row[11],
    )


def _violation(need: ApprovalNeeded, request_id: str, remedy: str) -> Violation:
    return Violation(
        code="APPROVAL_REQUIRED",
        field=need.gate,
        value=request_id,
        message=f"{need.gate}: {need.operation} of {need.target} needs an approval."
        f" {remedy.strip()}",
    )


def _grant_command(need: ApprovalNeeded, tool_id: str) -> str:
    """How to permit later calls too, where a standing approval can."""
    bounds = as_bounds(need)
    if not bounds:
        return ""
    return f", or for later calls too `actum approvals grant {tool_id} {bounds} --uses N …`"


def _risk(need: ApprovalNeeded) -> dict[str, Json]:
    if need.gate == EXIT_126:
        level, factors = "low", ["the tool ended with 126: permission denied"]
    elif need.gate == FIRST_USE:
        level, factors = "medium", ["the tool is not approved as it is"]
    elif need.gate == SCOPE:
        level, factors = "medium", ["goes beyond the approved scope of the tool"]
    elif need.gate == ELEVATED:
        level, factors = "high", ["reads outside the project"]
    elif need.gate == GOVERNING_CHANGES:
        level, factors = "high", ["changes names that decide what is executed later"]
    elif need.gate == WRITE_OUTSIDE:
        level, factors = "high", ["writes outside the working directory"]
    elif need.target == ANY_NAME:
        level, factors = "high", ["whatever the tool can read can leave by any public host"]
    else:
        level, factors = "medium", [_OUTSIDE]
    return {"risk_level": level, "risk_factors": factors, "mitigations": ["sandbox", "single use"]}


#: Of a host by name, an internal address, and class tcp.
_OUTSIDE = "reaches a host that the pin does not name, a service that is not public, or not HTTP"


def _require_decidable(request: Request, by: str) -> None:
    if request.gate in (FIRST_USE, SCOPE):
        raise Refused(
            "NOTHING_TO_DECIDE",
            f"{request.request_id} asks for the approval of a tool, which is not given here.",
            remedy=f"`actum tools approve {request.document['tool_id']} --by WHO --evidence REF`.",
        )
    if request.kind != "request":
        raise Refused(
            "NOTHING_TO_DECIDE",
            f"{request.request_id} is an escalation: it reports something and asks for nothing.",
            remedy="`actum receipts show` has its execution.",
        )
    if request.state is not State.PENDING:
        raise Refused(
            "ALREADY_DECIDED",
            f"{request.request_id} is {request.state}.",
            remedy="Let the requester ask again; that makes a new request.",
        )
    if person(by) == person(request.requested_by):
        raise Refused(
            "APPROVER_IS_REQUESTER",
            f"{by} asked for this and cannot decide it.",
            remedy="Another person must.",
        )


def _record(
    request: Request, decision: Decision, by: str, user: OsUser, why: str, at: str
) -> dict[str, Json]:
    """The audit record: closed fields only, and the digest of the reason."""
    asked = request.requested_as
    return {
        "v": VERSION,
        "kind": Kind.APPROVAL,
        "event": "decided",
        "ts": at,
        "request_id": request.request_id,
        "gate": request.gate,
        "call_sha256": request.call_sha256,
        "execution_id": closed(request.document["execution_id"]),
        "requested_by": closed(request.requested_by),
        "requested_uid": None if asked is None else asked.uid,
        "requested_user": None if asked is None else closed(asked.name),
        "decision": decision,
        "decided_by": closed(by),
        "decided_uid": user.uid,
        "decided_user": closed(user.name),
        "rationale_sha256": sha256_bytes(why.encode("utf-8", "surrogatepass")),
    }


def _recorded_users(grant: Granted) -> dict[str, Json]:
    """The users that the record of the decision names; an earlier version names none."""
    asked, decided = grant.requested_as, grant.decided_as
    return {
        "requested_uid": None if asked is None else asked.uid,
        "decided_uid": None if decided is None else decided.uid,
        "decided_user": None if decided is None else closed(decided.name),
    }


def _event(cursor: sqlite3.Cursor, request_id: str, event: str, at: str) -> dict[str, Json]:
    """The audit record of a request that was made or used; it binds the row as it is now."""
    return {
        "v": VERSION,
        "kind": Kind.APPROVAL,
        "event": event,
        "ts": at,
        "request_id": request_id,
        ROWS: [bound_now(cursor, _TABLE, request_id)],
    }


def _require_recorded(page: Page, grant: Granted) -> None:
    """The log is signed, the row is not: an edited row approves nothing, nor does a used one that
    was put back."""
    row = row_of(page.cursor, _TABLE, grant.request_id)
    record: dict[str, Json] = {}
    try:
        record, *later = _records_about(grant.request_id, page.proven_from(row["decision_seq"]))
    except (VerificationFailed, TypeError, ValueError):
        later = []
    expected = {
        "kind": Kind.APPROVAL,
        "request_id": grant.request_id,
        "gate": grant.need.gate,
        "call_sha256": row["call_sha256"],
        "decision": Decision.ALLOW,
        "decided_by": closed(grant.decided_by),
        "decided_role": grant.role,
        **_recorded_users(grant),
    }
    # Records before version 3 bind no row. Since then a changed expiry is found here. A row that
    # was used meanwhile differs legitimately, and is refused as used.
    changed = row["state"] == State.APPROVED and (
        any(tuple(differing(_TABLE, each["columns"], row)) for each in record.get(ROWS, ()))
        or any(each.get("event") == "used" for each in later)
    )
    if changed or any(record.get(name) != value for name, value in expected.items()):
        raise Refused(
            "APPROVAL_NOT_RECORDED",
            f"The audit log holds no such decision about {grant.request_id}.",
            remedy="The store was changed outside Actum. Run `actum verify --all`.",
        )


def _records_about(request_id: str, records: Iterable[bytes]) -> list[dict[str, Json]]:
    text = request_id.encode()
    found = [json.loads(record) for record in records if text in record]
    return [
        each
        for each in found
        if (each.get("kind"), each.get("request_id")) == (Kind.APPROVAL, request_id)
    ]
