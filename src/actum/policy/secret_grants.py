"""The secrets that a call may have: those in its tool's approval, in harmless variables.

Only names are checked here. The runner gets the values later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from actum.contract.call import Call, SecretUse
from actum.errors import Violation
from actum.policy.environment import approved_names, is_never_passed
from actum.registry.model import Entry

#: The tool's first descriptor after its three streams.
FIRST_DESCRIPTOR = 3
#: Most secrets of one call: more would not fit beside the other descriptors of a start.
_MOST = 16


def check_secrets(call: Call, entry: Entry) -> tuple[Violation, ...]:
    """All problems with the secrets of `call`."""
    return tuple(_problems(call, entry))


def descriptor_numbers(uses: Iterable[SecretUse]) -> dict[str, str]:
    """variable -> number, for the secrets read from a descriptor."""
    passed = [use for use in uses if use.by_descriptor]
    return {use.variable: str(FIRST_DESCRIPTOR + index) for index, use in enumerate(passed)}


def _problems(call: Call, entry: Entry) -> Iterator[Violation]:
    allowed = entry.tool.permissions.secrets
    taken: set[str] = set(call.environment)
    if len(call.secrets) > _MOST:
        text = f"{len(call.secrets)} secrets are requested; one call may have {_MOST}."
        yield _objection("SECRET_NOT_ALLOWED", "inputs.secrets", text)
    for use in call.secrets:
        field = f"inputs.secrets.{use.name}"
        if use.name not in allowed:
            listed = ", ".join(allowed) or "none"
            yield _objection(
                "SECRET_NOT_ALLOWED",
                field,
                f"{entry.tool.tool_id} is not approved for the secret {use.name} (approved:"
                f" {listed}). Name it in permissions.secrets.allowed and approve the tool again.",
            )
        elif not use.by_descriptor and not _fit(use, entry):
            yield _objection(
                "SECRET_NOT_ALLOWED",
                field,
                f"The variable {use.variable} may not carry {use.name}: use the secret's own name,"
                " or one that the tool lists under environment.",
            )
        elif use.variable in taken:
            yield _objection(
                "SECRET_NOT_ALLOWED",
                field,
                f"The variable {use.variable} is set twice; remove one of the two.",
            )
        taken.add(use.variable)


def _fit(use: SecretUse, entry: Entry) -> bool:
    if is_never_passed(use.variable):
        return False
    return use.variable == use.name or use.variable in approved_names(entry)


def _objection(code: str, field: str, message: str) -> Violation:
    return Violation(code=code, field=field, value="", message=message)
