"""A standing approval: one person's decision for many calls of one tool, within written bounds.

It names a tool, hosts and paths, and ends after a number of uses, at a time, or at whichever comes
first. It is bound to the tool's pin and scope, to the approved settings, and to the number of
decisions about both in `tools.lock`: any later decision ends it for good, also one that puts the
former folder or value back.
"""

from __future__ import annotations

from actum.contract.approvers import person
from actum.contract.canonical import sha256_json
from actum.contract.os_user import OsUser
from actum.policy.gates import WRITE_OUTSIDE, ApprovalNeeded
from actum.policy.standing_cover import covers
from actum.value import as_dict, value


@value
class Binding:
    """The state of a tool and of the settings; an approval holds only for exactly this one."""

    pin: str  #: digest of the tool's folder
    scope_sha256: str
    settings_sha256: str
    #: Decisions on record in `tools.lock`, which only grow: an old state that is put back is new.
    tool_decisions: int
    settings_decisions: int

    def differs(self, now: Binding) -> str:
        """What has changed since; empty if nothing has."""
        if now.pin != self.pin:
            return f"the tool's folder has changed since (approved as {now.pin[:12]})"
        if now.scope_sha256 != self.scope_sha256:
            return "the scope of the tool has changed since"
        if now.tool_decisions != self.tool_decisions:
            return "the tool was approved, deprecated, blocked or unblocked since"
        if (now.settings_sha256, now.settings_decisions) != (
            self.settings_sha256,
            self.settings_decisions,
        ):
            return "the settings of actum.toml have changed since"
        return ""


@value
class Decider:
    """Who granted or revoked, as given and as the operating system identifies them."""

    by: str
    user: OsUser
    role: str
    at: str
    why: str


@value
class StandingApproval:
    approval_id: str
    tool_id: str
    binding: Binding
    hosts: tuple[str, ...]
    paths: tuple[str, ...]  #: absolute, resolved when granted
    uses: int | None  #: ``None``: any number
    used: int
    until: str | None
    granted: Decider
    revoked: Decider | None
    last_used_by: str | None  #: the execution that used it last

    @property
    def uses_left(self) -> int | None:
        return None if self.uses is None else self.uses - self.used

    @property
    def terms_sha256(self) -> str:
        """Of everything that never changes."""
        document = as_dict(self)
        for name in ("used", "revoked", "last_used_by"):
            del document[name]
        return sha256_json(document)

    def is_about(self, need: ApprovalNeeded) -> bool:
        return bool(self.paths if need.gate == WRITE_OUTSIDE else self.hosts)

    def why_ended(self, moment: str) -> str:
        """Why it serves no call at `moment`; empty if it does."""
        if self.revoked is not None:
            return f"{self.revoked.by} revoked it at {self.revoked.at}"
        if self.uses_left == 0:
            return f"its {self.uses} uses are used up"
        if self.until is not None and self.until <= moment:
            return f"it expired at {self.until}"
        return ""

    def why_not(self, need: ApprovalNeeded, call: StandingCall) -> str:
        """Why it does not permit `need` of `call`; empty if it does."""
        gone = self.why_ended(call.moment) or self.binding.differs(call.binding)
        if gone:
            return gone
        if not covers(need, hosts=self.hosts, paths=self.paths, reached=call.reached):
            kind = "paths" if need.gate == WRITE_OUTSIDE else "hosts"
            listed = ", ".join(self.paths if need.gate == WRITE_OUTSIDE else self.hosts)
            return f"its {kind} ({listed or 'none'}) do not cover {need.target}"
        if person(self.granted.by) == person(call.requested_by):
            return f"{call.requested_by} granted it and cannot use it"
        return ""


@value
class StandingCall:
    """What a standing approval is compared with."""

    binding: Binding
    reached: tuple[str, ...]  #: hosts that the call could reach with all its approvals
    requested_by: str
    moment: str
