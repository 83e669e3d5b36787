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
from actum.adapters.told import Told
from actum.capture.model import Capture, Exited
from actum.contract.call import Call
from actum.contract.model import Contract
from actum.errors import Refused
from actum.registry.model import Adapter, AdapterKind, Entry


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


def may_repeat(contract: Contract, entry: Entry, operation: str) -> bool:
    """Whether `operation` may be done twice: by nature, as declared, or because it has a key."""
    declared = entry.tool.operation(operation)
    if declared.idempotent:
        return True
    if declared.key is not None:
        parameters = transformed(contract, entry).inputs.parameters
        if parameters.get(declared.key) is not None:
            return True
    return entry.adapter.kind is AdapterKind.API and _api_repeatable(entry.adapter, operation)


def said_by(adapter: Adapter, capture: Capture) -> Said:
    """What there is to transform: stdout, and the value that a driver's answer holds."""
    return _SPEAKERS.get(adapter.kind, _stdout)(adapter, capture)


def told_by(adapter: Adapter, capture: Capture) -> Told:
    """What `capture` says, in the words of this kind of adapter."""
    return _TELLERS.get(adapter.kind, _exit_code)(capture)


def _stdout(_: Adapter, capture: Capture) -> Said:
    return Said(raw=capture.stdout.kept, truncated=capture.stdout.truncated)


def _exit_code(capture: Capture) -> Told:
    """Only of a tool that ended by itself: 143 for a timeout is our word, not the tool's."""
    return Told(code=capture.ending.code if isinstance(capture.ending, Exited) else None)


# Each loads its kind when the first adapter of that kind is used.


def _api_call(contract: Contract, entry: Entry) -> Call:
    from actum.adapters import api

    return api.build_call(contract, entry)


def _api_answer(adapter: Adapter, capture: Capture) -> Said:
    from actum.adapters import api_answer

    return api_answer.said_by(adapter, capture)


def _api_status(capture: Capture) -> Told:
    from actum.adapters import api_answer

    return api_answer.told_by(capture)


def _api_repeatable(adapter: Adapter, operation: str) -> bool:
    from actum.adapters import api

    return api.repeatable(adapter, operation)


_BUILDERS: Mapping[AdapterKind, Callable[[Contract, Entry], Call]] = {
    AdapterKind.CLI: cli.build_call,
    AdapterKind.API: _api_call,
    AdapterKind.SDK: sdk.build_call,
    AdapterKind.MCP: mcp.build_call,
}
_SPEAKERS: Mapping[AdapterKind, Callable[[Adapter, Capture], Said]] = {
    AdapterKind.API: _api_answer,
    AdapterKind.SDK: lambda _, capture: sdk.said(capture),
    AdapterKind.MCP: lambda _, capture: mcp.said(capture),
}
_TELLERS: Mapping[AdapterKind, Callable[[Capture], Told]] = {
    AdapterKind.API: _api_status,
    # An answer that says "error" is an answer, and has no code to try again for.
    AdapterKind.MCP: mcp.told,
}
