"""Whether a call's changes are a transaction, or the tool writes to the folders themselves.

The project has a default (`[workspace] changes`). A tool can have its own (`workspace` in
tool.yaml), which its pin approves: `direct`, `transaction`, or `either`, which leaves it to the
project and to the request. A request may always ask for a transaction, which grants less. It may
ask for `direct` only where that is approved for the tool or the project.
"""

from __future__ import annotations

from actum.contract.model import ChangesMode
from actum.errors import Violation
from actum.policy.policy_settings import PolicySettings
from actum.registry.model import Entry

_FIELD = "sandbox.filesystem.changes"


def changes_mode(
    asked: ChangesMode | None, entry: Entry, settings: PolicySettings
) -> tuple[ChangesMode, tuple[Violation, ...]]:
    if settings.always_direct:
        return ChangesMode.DIRECT, ()
    default = ChangesMode.TRANSACTION if settings.transactions else ChangesMode.DIRECT
    declared = entry.tool.workspace
    own = default if declared in ("", "either") else ChangesMode(declared)
    if asked is None or asked is own or asked is ChangesMode.TRANSACTION:
        return asked or own, ()
    if declared == "either":
        return asked, ()
    problem = (
        f"The tool {entry.tool.name} is not approved to write directly. Leave the field out, or"
        " have `workspace: either` approved in its tool.yaml."
    )
    return own, (_refused(asked, problem),)


def _refused(asked: ChangesMode, message: str) -> Violation:
    return Violation(code="CHANGES_NOT_PERMITTED", field=_FIELD, value=asked.value, message=message)
