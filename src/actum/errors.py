"""Refusals and faults: the two ways Actum says no.

A *refusal* means nothing ran and the caller can act on it. A *fault* means we failed. How a tool
itself ended is neither: that is data (`capture.Ending`). Every code is stable, is listed in
`docs/errors.md`, and comes with a next step.
"""

from __future__ import annotations

from actum.value import value


@value
class Problem:
    """One problem in a document, with what its author needs to fix it."""

    field: str  #: dotted path, e.g. ``sandbox.timeout_ms``; "" is the document itself
    message: str
    value: str = ""  #: the offending value, shortened
    permitted: str = ""  #: range or set that would have been accepted
    file: str = ""
    line: int = 0  #: 1-based; 0 when the document did not come from text
    column: int = 0

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        where = f"{self.field}: " if self.field else ""
        permitted = f" (permitted: {self.permitted})" if self.permitted else ""
        return f"{position}{where}{self.message}{permitted}"


@value
class Violation:
    """One rule that a well-formed request breaks."""

    code: str  #: ``IV-01`` … ``IV-05`` or a reason code
    field: str
    value: str
    message: str


class ActumError(Exception):
    """Base of everything Actum raises on purpose."""

    code = "ACTUM_ERROR"

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()


class ContractInvalid(ActumError):
    """A contract, a request, a tool or an adapter is malformed; every problem is listed."""

    code = "CONTRACT_INVALID"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Refused(ActumError):
    """The request was understood and refused. Nothing ran."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        remedy: str = "",
        violations: tuple[Violation, ...] = (),
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code
        self.violations = violations or (
            Violation(code=code, field="", value="", message=str(self)),
        )


class Fault(ActumError):
    """Actum itself failed. Never shown as the output of a tool."""

    code = "FAULT"


class SandboxUnavailable(Fault):
    """The sandbox could not be set up; the tool was not started."""

    code = "SANDBOX_UNAVAILABLE"


class EvidenceUnavailable(Fault):
    """A record could not be written, so nothing may run unrecorded."""

    code = "AUDIT_LOG_FAILED"


class VerificationFailed(ActumError):
    """A record does not prove what it claims."""

    code = "VERIFICATION_FAILED"
