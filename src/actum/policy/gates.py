"""Approval gates: rights that need more than a contract's request."""

from __future__ import annotations

from collections.abc import Iterable

from actum.contract.os_user import OsUser
from actum.value import value

FIRST_USE = "AG-01"
SCOPE = "AG-02"
NETWORK = "AG-03"
WRITE_OUTSIDE = "AG-04"
ELEVATED = "AG-05"
#: Changes to names that decide what is executed later, held until a person has decided.
GOVERNING_CHANGES = "AG-06"

#: Gates that a tool's pin has already decided: its approver saw what it grants.
BY_PIN = "pin"

ANY_NAME = "any host"
RAW_TCP = "class tcp"


@value
class ApprovalNeeded:
    """A decision that a person has to make before this call may run."""

    gate: str
    target: str  #: the path, host or level in question
    operation: str  #: read, write or connect


#: Begins `Granted.decided_by` where a standing approval decided.
STANDING = "standing:"


@value
class Granted:
    """A person's decision for exactly this call, or a standing approval that covers it."""

    need: ApprovalNeeded
    request_id: str
    decided_by: str
    #: The operating system users who requested and decided; ``None``: an earlier version did not
    #: record them.
    requested_as: OsUser | None = None
    decided_as: OsUser | None = None
    #: The decider's role; ``any``: there were no approvers; ``None``: an earlier version decided.
    role: str | None = None
    #: Of a standing approval: the person who granted it, and the digest of its terms as judged.
    granted_by: str | None = None
    terms_sha256: str | None = None

    @property
    def is_standing(self) -> bool:
        return self.granted_by is not None

    @property
    def same_user(self) -> bool | None:
        """Whether one operating system user requested and decided."""
        if self.requested_as is None or self.decided_as is None:
            return None
        return self.requested_as.uid == self.decided_as.uid

    @property
    def entry(self) -> str:
        """The notation in an effective policy and its receipt."""
        if self.is_standing:
            return f"{self.need.gate}:{self.decided_by}"
        return f"{self.need.gate}:{self.decided_by}:{self.request_id}"


def imagined(needed: Iterable[ApprovalNeeded]) -> tuple[Granted, ...]:
    """As if everything had been approved: describes what an approval would be for."""
    return tuple(Granted(need=need, request_id="", decided_by="") for need in needed)
