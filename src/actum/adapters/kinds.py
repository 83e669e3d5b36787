"""The kinds of adapters: one line each. What is common to them all is in the pipeline.

`build_call` says what would run; `said_by` is the answer to be transformed; `told_by` reads, from
what came back, what the engine needs to know in order to try again or to fall back. None of them
decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actum.adapters import cli, mcp, sdk
from actum.adapters.inputs import transformed
from actum.adapters.output import Said
from actum.capture.interpret import interpret
from actum.capture.model import Capture
from actum.contract.call import Call
from actum.contract.model import Contract
from actum.errors import Refused, Violation
from actum.registry.model import Adapter, AdapterKind, Entry
from actum.value import value


@value
class Told:
    """What one attempt says about whether another one makes sense."""

    code: int | None  #: exit code (cli) or HTTP status (api); ``None``: there is none
    transport_failure: bool = False  #: the other side was not reached, or its answer was cut off
    retry_after_s: float | None = None  #: what the other side asked for


def build_call(contract: Contract, entry: Entry) -> Call:
    """What would run; raises `Refused` with everything that is wrong with the request at once."""
    build = _BUILDERS.get(entry.adapter.kind)
    if build is None:
        raise Refused(
            "ADAPTER_KIND_UNSUPPORTED",
            f"Adapter {entry.adapter.adapter_id} is of type {entry.adapter.kind}, which this "
            "version cannot run.",
            remedy="Name an adapter of another type in adapter_id.",
        )
    return build(transformed(contract, entry), entry)


def check_supported(adapter: Adapter) -> tuple[Violation, ...]:
    """Whatever in `adapter` this version cannot carry out."""
    # Asked for and silently not done would be a promise broken.
    again = []
    if adapter.retry.max_attempts > 1:
        again.append(
            Violation(
                code="RETRY_UNSUPPORTED",
                field="errors.retry.max_attempts",
                value=str(adapter.retry.max_attempts),
                message="errors.retry: this version makes one attempt. Write max_attempts: 1.",
            )
        )
    if adapter.fallback is not None:
        again.append(
            Violation(
                code="RETRY_UNSUPPORTED",
                field="errors.fallback",
                value=adapter.fallback.adapter_id,
                message="errors.fallback: this version has no fallback. Write fallback: null.",
            )
        )
    return tuple(again)


def said_by(adapter: Adapter, capture: Capture) -> Said:
    """What there is to transform: stdout, and the value that a driver's answer holds."""
    return _SPEAKERS.get(adapter.kind, _stdout)(capture)


def told_by(adapter: Adapter, capture: Capture) -> Told:
    """What `capture` says, in the words of this kind of adapter."""
    return _TELLERS.get(adapter.kind, _exit_code)(capture)


def _stdout(capture: Capture) -> Said:
    return Said(raw=capture.stdout.kept, truncated=capture.stdout.truncated)


def _exit_code(capture: Capture) -> Told:
    return Told(code=interpret(capture.ending).exit_code)


_BUILDERS: Mapping[AdapterKind, Callable[[Contract, Entry], Call]] = {
    AdapterKind.CLI: cli.build_call,
    AdapterKind.SDK: sdk.build_call,
    AdapterKind.MCP: mcp.build_call,
}
_SPEAKERS: Mapping[AdapterKind, Callable[[Capture], Said]] = {
    AdapterKind.SDK: sdk.said,
}
_TELLERS: Mapping[AdapterKind, Callable[[Capture], Told]] = {
    # An answer that says "error" is an answer, and has no code to try again for.
    AdapterKind.MCP: lambda capture: Told(
        code=None, transport_failure=mcp.lost_on_the_way(capture)
    ),
}
