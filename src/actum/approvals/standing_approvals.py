"""Standing approvals of a project: granted, listed, used and revoked.

A use is counted in the transaction that lets the execution start. So two processes cannot both take
the last one, and a process that is killed after that has spent it. The times of the records since
the last use are a lower bound of the present, so a clock that was set back renews nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from actum.approvals.decider import require_fit, unfit
from actum.approvals.standing import Binding, Decider, StandingApproval, StandingCall
from actum.approvals.standing_bounds import permitted_host, permitted_path
from actum.approvals.standing_rows import insert, proven, stored, update_revoked, update_used
from actum.contract.approvers import Approvers, Role
from actum.contract.canonical import sha256_json
from actum.contract.ids import new_id
from actum.contract.os_user import os_user
from actum.errors import Refused
from actum.evidence.log import Log, Page
from actum.evidence.records.trace import rfc3339
from actum.policy.gates import STANDING, ApprovalNeeded, Granted
from actum.policy.policy_settings import PolicySettings
from actum.policy.standing_cover import GATES
from actum.registry.model import Pin, ToolStatus
from actum.registry.pinned_settings import ApprovedSettings
from actum.registry.registry import Registry
from actum.store.database import Database
from actum.value import replace

_MOST_USES = 1_000_000
#: Approvals that a refusal explains, the newest first.
_MOST_EXPLAINED = 3


class StandingApprovals:
    def __init__(
        self,
        database: Database,
        log: Log,
        clock: Callable[[], datetime],
        registry: Registry,
        settings: ApprovedSettings,
        policy: PolicySettings,
        approvers: Callable[[], Approvers],
    ) -> None:
        self._database = database
        self._log = log
        self._clock = clock
        self._registry = registry
        self._settings = settings
        self._policy = policy
        self._approvers = approvers
        self._user = os_user()

    def latest(self, *, ended: bool = False, limit: int = 100) -> tuple[StandingApproval, ...]:
        """Newest first; `ended` includes those that serve no call any more (`why_ended`)."""
        found = stored(self._database, "ORDER BY rowid DESC")
        return tuple(each for each in found if ended or not self.why_ended(each))[:limit]

    def get(self, approval_id: str) -> StandingApproval | None:
        found = stored(self._database, "WHERE approval_id = ?", approval_id)
        return found[0] if found else None

    def find(self, approval_id: str) -> StandingApproval:
        found = self.get(approval_id)
        if found is None:
            raise Refused(
                "APPROVAL_UNKNOWN",
                f"There is no standing approval {approval_id[:80]!r}.",
                remedy="`actum approvals list --all` shows those there are.",
            )
        return found

    def why_ended(self, approval: StandingApproval) -> str:
        """Why it serves no call of its tool now; empty if it does."""
        pin = self._registry.lock().pin(approval.tool_id)
        if gone := approval.why_ended(rfc3339(self._clock())):
            return gone
        if pin is None:
            return "the tool is not approved any more"
        if pin.status is not ToolStatus.ACTIVE:
            return f"the tool is {pin.status}"
        return approval.binding.differs(self._binding(pin))

    def _binding(self, pin: Pin) -> Binding:
        lock = self._registry.lock()
        return Binding(
            pin=pin.digest,
            scope_sha256=sha256_json(dict(pin.grants)),
            settings_sha256=self._settings.sha256,
            tool_decisions=sum(change.tool_id == pin.tool_id for change in lock.history),
            settings_decisions=len(lock.settings_history),
        )

    def grant(
        self,
        tool: str,
        *,
        hosts: Iterable[str] = (),
        paths: Iterable[str | os.PathLike[str]] = (),
        uses: int | None = None,
        until: datetime | timedelta | None = None,
        by: str,
        why: str,
    ) -> StandingApproval:
        """Let later calls of `tool` reach `hosts` (AG-03) and write `paths` (AG-04), `uses` times
        or `until` a time, whichever ends first."""
        require_fit(by, why)
        self._settings.require()
        pin, at, policy = self._usable(tool), self._clock(), self._policy
        if uses is not None and not 0 < uses <= _MOST_USES:
            raise unfit("--uses", str(uses), f"a number from 1 to {_MOST_USES}")
        if uses is None and until is None:
            raise _missing("--uses, --until", "Give a number of uses, a time, or both.")
        ends = None if until is None else _end(until, at)
        listed = [permitted_host(host, pin, policy) for host in hosts]
        lock = self._registry.lock()
        folders = [permitted_path(os.fspath(path), pin, policy, lock) for path in paths]
        if not listed and not folders:
            raise _missing("--host, --path", "Give the hosts or paths that it covers.")
        with self._log.page() as page:
            approval = StandingApproval(
                approval_id=new_id(),
                tool_id=pin.tool_id,
                binding=self._binding(pin),
                hosts=tuple(dict.fromkeys(listed)),
                paths=tuple(dict.fromkeys(folders)),
                uses=uses,
                used=0,
                until=ends,
                granted=self._decider(page, by, why, at),
                revoked=None,
                last_used_by=None,
            )
            insert(page, approval)
        return approval

    def revoke(self, approval_id: str, *, by: str, why: str) -> StandingApproval:
        """End it now. An execution that has started is not stopped."""
        require_fit(by, why)
        self.find(approval_id)
        with self._log.page() as page:
            approval = proven(page, approval_id).approval
            if approval.revoked is not None:
                raise Refused(
                    "ALREADY_DECIDED",
                    f"{approval.revoked.by} revoked {approval_id} at {approval.revoked.at}.",
                    remedy="Nothing is left to do.",
                )
            revoked = self._decider(page, by, why, self._clock())
            approval = replace(approval, revoked=revoked)
            update_revoked(page, approval, revoked)
        return approval

    def serving(
        self,
        needed: Iterable[ApprovalNeeded],
        *,
        pin: Pin,
        reached: tuple[str, ...],
        requested_by: str,
        at: datetime,
    ) -> tuple[tuple[Granted, ...], Mapping[ApprovalNeeded, str]]:
        """The needs of a call that standing approvals cover, and why none covers the others.

        `reached` are the hosts that the call could reach with every approval.
        """
        granted: list[Granted] = []
        reasons: dict[ApprovalNeeded, str] = {}
        known = stored(self._database, "WHERE tool_id = ? ORDER BY rowid DESC", pin.tool_id)
        if not known:
            return (), reasons
        call = StandingCall(
            binding=self._binding(pin),
            reached=reached,
            requested_by=requested_by,
            moment=rfc3339(at),
        )
        # One without a count first: it spends nothing.
        ordered = sorted(known, key=lambda each: each.uses is not None)
        for need in needed:
            if need.gate not in GATES:
                continue
            fit = next((each for each in ordered if not each.why_not(need, call)), None)
            if fit is not None:
                granted.append(self._granted(fit, need))
                continue
            about = [each for each in known if each.is_about(need)][:_MOST_EXPLAINED]
            reasons[need] = " ".join(
                f"Standing approval {each.approval_id} does not apply: {each.why_not(need, call)}."
                for each in about
            )
        return tuple(granted), reasons

    def _granted(self, approval: StandingApproval, need: ApprovalNeeded) -> Granted:
        return Granted(
            need=need,
            request_id=approval.approval_id,
            decided_by=f"{STANDING}{approval.approval_id}",
            requested_as=self._user,
            decided_as=approval.granted.user,
            role=approval.granted.role,
            granted_by=approval.granted.by,
            terms_sha256=approval.terms_sha256,
        )

    def use(
        self, page: Page, grant: Granted, execution_id: str, trace_id: str, at: datetime
    ) -> None:
        """Count one use, in the transaction that lets the execution start; or raise."""
        found = proven(page, grant.request_id)
        approval = found.approval
        moment = max(rfc3339(at), found.newest)
        gone = approval.why_ended(moment)
        if approval.terms_sha256 != grant.terms_sha256:
            gone = "the store was changed while the call was judged"
        if gone:
            raise Refused(
                "STANDING_APPROVAL_ENDED",
                f"The standing approval {approval.approval_id} does not apply: {gone}.",
                remedy="Repeat the call: it then asks for an approval.",
            )
        used = replace(approval, used=approval.used + 1, last_used_by=execution_id)
        update_used(page, used, grant.decided_by, trace_id, rfc3339(at))

    def _decider(self, page: Page, by: str, why: str, at: datetime) -> Decider:
        key_ids = page.signer.public.ids
        role = self._approvers().require(by, Role.ACCESS, user=self._user, key_ids=key_ids)
        return Decider(by=by, user=self._user, role=role, at=rfc3339(at), why=why)

    def _usable(self, tool: str) -> Pin:
        pin = self._registry.lock().pin(tool)
        if pin is None or pin.status is not ToolStatus.ACTIVE:
            return self._registry.entry(tool, None).pin  # which says why not
        return pin


def _missing(fields: str, remedy: str) -> Refused:
    return Refused("DECISION_UNFIT", f"{fields}: neither is given.", remedy=remedy)


def _end(until: datetime | timedelta, at: datetime) -> str:
    try:
        ends = at + until if isinstance(until, timedelta) else until
    except OverflowError as error:
        raise unfit("--until", str(until), "a time before the year 10000") from error
    if ends.tzinfo is None:
        raise unfit("--until", str(until), "a time with its UTC offset")
    if ends <= at:
        raise unfit("--until", str(until), "a time in the future")
    return rfc3339(ends.astimezone(UTC))
