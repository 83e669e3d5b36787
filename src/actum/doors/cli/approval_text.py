"""Formats a call that waits for a decision, for a person at a terminal.

The requester wrote everything in it. Control characters and line ends are escaped, and each line of
an input follows a number and a bar, so that none of it can imitate a line of Actum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from actum.contract.model import Json
from actum.doors.cli.terminal import one_line

if TYPE_CHECKING:
    from actum.approvals.requests import Request

_ADDED = {
    "read": "reads",
    "write": "writes",
    "hosts": "reaches",
    "internal": "reaches the internal address of",
    "protocols": "speaks",
}
_GRANTED = (
    "commands",
    "filesystem",
    "read",
    "write",
    "hosts",
    "outbound",
    "secrets",
    "environment",
)


def call_lines(request: Request, bound: Mapping[str, Json] | None) -> Iterator[str]:
    """The call to decide about; `bound` is ``None`` when the call is no longer stored."""
    if request.kind != "request":
        return
    if bound is None:
        if request.state == "pending":
            yield "call: lost or changed. Repeating the request stores it again."
        elif request.used_by:
            yield f"call: executed; `actum receipts show {request.used_by}` has its record."
        else:
            yield "call: no longer stored."
        return
    call, grants = bound["call"], bound["grants"]
    tool, adapter = call["tool"], call["adapter"]
    yield f"tool: {tool['id']} {tool['name']} {tool['version']}, approved as {tool['pin']}"
    yield f"adapter: {adapter['id']} {adapter['version']} ({adapter['kind']})"
    yield f"operation: {one_line(call['operation'])}"
    yield f"argv: {_words(call['argv'])}"
    yield f"working directory: {one_line(call['working_directory'])}"
    yield from _input(call["stdin"])
    yield f"files: {len(call['files']) or 'none'}"
    for file in call["files"]:
        yield f"  {one_line(file['path'])} sha256 {file['sha256']}"
    for name, digest in call["provided"].items():
        yield f"  brought by the adapter: {one_line(name)} sha256 {digest}"
    yield f"environment: {_listed(call['environment'])}"
    secrets = [f"{each['name']} (as {each['as']})" for each in call["secrets"]]
    yield f"secrets: {_listed(secrets)}"
    files, network = grants["filesystem"], grants["network"]
    yield f"would read: {_listed(files['read'])}"
    yield f"would write: {_listed(files['write'])}"
    yield f"never: {_listed([*files['deny'], *files['protect']])}"
    hosts = [*network["allow"], *network["internal"]] if network["enabled"] else []
    yield f"would reach: {_listed(hosts)}"
    yield f"limits: {_listed([f'{name} {value}' for name, value in grants['limits'].items()])}"
    yield from _beyond(bound)


def _input(stdin: Mapping[str, Json]) -> Iterator[str]:
    if not stdin["bytes"]:
        yield "stdin: none"
        return
    kind = "text" if stdin["encoding"] == "utf-8" else "binary, shown as hex"
    part = ", of which this is the beginning" if stdin["truncated"] else ""
    yield f"stdin: {stdin['bytes']} bytes, {kind}, sha256 {stdin['sha256']}{part}"
    head = stdin["head"]
    if stdin["encoding"] != "utf-8":
        head = "\n".join(head[start : start + 64] for start in range(0, len(head), 64))
    lines = head.split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        yield f"{number:6} | {one_line(line)}"


def _beyond(bound: Mapping[str, Json]) -> Iterator[str]:
    """The rights that the approval adds to those of the tool's own approval."""
    added = bound["adds"]
    if not added:
        yield "beyond the tool's approval: nothing that this policy would show"
    for name, values in added.items():
        yield f"beyond the tool's approval: {_ADDED[name]} {_listed(values)}"
    scope = bound["scope"]
    known = [f"{name} {_listed(scope[name])}" for name in _GRANTED if scope.get(name)]
    yield f"the tool's approval: {'; '.join(known) or 'grants nothing'}"


def _words(argv: list[str]) -> str:
    # Each argument is quoted: a space inside one differs from a space between two.
    return " ".join(one_line(json.dumps(word, ensure_ascii=False)) for word in argv)


def _listed(values: list[str]) -> str:
    return ", ".join(one_line(str(value)) for value in values) or "none"
