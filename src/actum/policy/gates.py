"""Approval gates: what an execution may not do merely because its contract asks for it."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_USE = "AG-01"
NETWORK = "AG-03"
WRITE_OUTSIDE = "AG-04"
ELEVATED = "AG-05"

#: Gates that a tool's pin has decided already: whoever approved the pin saw what it grants.
BY_PIN = "pin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalNeeded:
    """A decision that a person has to take before this call may run."""

    gate: str
    target: str  #: the path, host or level in question
    operation: str  #: read, write or connect
