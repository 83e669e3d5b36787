"""The kinds of adapters: one line each. The pipeline holds what is common to all.

`build_call` returns what would run; `answer_of` the answer to be transformed; `report_of` what the
pipeline needs in order to retry or to fall back. None of them decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actum.adapters import cli
from actum.adapters.attempt_report import AttemptReport
from actum.adapters.input_transforms import transformed
from actum.adapters.output_transforms import ToolAnswer
from actum.capture.model import Capture, Exited
from actum.contract.call import Call
from actum.contract.model import Contract
from actum.errors import Refused
from actum.registry.model import Adapter, AdapterKind, Entry


def build_call(contract: Contract, entry: Entry) -> Call:
    """What would run; raises `Refused` with all problems of the request at once."""
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
    """Whether `operation` may be repeated: by nature, as declared, or because it has a key."""
    declared = entry.tool.operation(operation)
    if declared.idempotent:
        return True
    if declared.key is not None:
        parameters = transformed(contract, entry).inputs.parameters
        if parameters.get(declared.key) is not None:
            return True
    return entry.adapter.kind is AdapterKind.API and _api_repeatable(entry.adapter, operation)


def answer_of(adapter: Adapter, capture: Capture) -> ToolAnswer:
    """The input of transforms: stdout, and the value in a driver's answer."""
    return _ANSWERS.get(adapter.kind, _stdout)(adapter, capture)


def report_of(adapter: Adapter, capture: Capture) -> AttemptReport:
    """The report of `capture`, by the rules of this kind of adapter."""
    return _REPORTS.get(adapter.kind, _exit_code)(capture)


def _stdout(_: Adapter, capture: Capture) -> ToolAnswer:
    return ToolAnswer(raw=capture.stdout.kept, truncated=capture.stdout.truncated)


def _exit_code(capture: Capture) -> AttemptReport:
    """Only for a tool that ended by itself: 143 for a timeout is Actum's code, not the tool's."""
    return AttemptReport(code=capture.ending.code if isinstance(capture.ending, Exited) else None)


# Each loads its kind when the first adapter of that kind is used; `cli` is used by nearly all.


def _api_call(contract: Contract, entry: Entry) -> Call:
    from actum.adapters import api

    return api.build_call(contract, entry)


def _api_answer(adapter: Adapter, capture: Capture) -> ToolAnswer:
    from actum.adapters import api_answer

    return api_answer.answer_of(adapter, capture)


def _api_status(capture: Capture) -> AttemptReport:
    from actum.adapters import api_answer

    return api_answer.report_of(capture)


def _api_repeatable(adapter: Adapter, operation: str) -> bool:
    from actum.adapters import api

    return api.repeatable(adapter, operation)


def _sdk_call(contract: Contract, entry: Entry) -> Call:
    from actum.adapters import sdk

    return sdk.build_call(contract, entry)


def _sdk_answer(_: Adapter, capture: Capture) -> ToolAnswer:
    from actum.adapters import sdk

    return sdk.answer_of(capture)


def _mcp_call(contract: Contract, entry: Entry) -> Call:
    from actum.adapters import mcp

    return mcp.build_call(contract, entry)


def _mcp_answer(_: Adapter, capture: Capture) -> ToolAnswer:
    from actum.adapters import mcp

    return mcp.answer_of(capture)


def _mcp_report(capture: Capture) -> AttemptReport:
    from actum.adapters import mcp

    return mcp.report_of(capture)


_BUILDERS: Mapping[AdapterKind, Callable[[Contract, Entry], Call]] = {
    AdapterKind.CLI: cli.build_call,
    AdapterKind.API: _api_call,
    AdapterKind.SDK: _sdk_call,
    AdapterKind.MCP: _mcp_call,
}
_ANSWERS: Mapping[AdapterKind, Callable[[Adapter, Capture], ToolAnswer]] = {
    AdapterKind.API: _api_answer,
    AdapterKind.SDK: _sdk_answer,
    AdapterKind.MCP: _mcp_answer,
}
_REPORTS: Mapping[AdapterKind, Callable[[Capture], AttemptReport]] = {
    AdapterKind.API: _api_status,
    # An error answer is an answer: it has no code to retry for.
    AdapterKind.MCP: _mcp_report,
}
