"""The allowlist of a tool: the entry of its scope, if any, that permits a call.

For a cli adapter an entry of `scope.commands` is a program (`rg`: with any arguments) or a program
and its leading words (`git status`). For sdk and mcp adapters it is the name of an operation. For
api adapters an entry of `scope.endpoints` is a URL, optionally after an HTTP method: it permits
itself and everything below it. Nothing is permitted by default; an empty list permits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from actum.contract.call import Argument, Call
from actum.registry.model import COMPILE, AdapterKind, Entry
from actum.value import value

_COMMAND_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@value
class AllowlistCheck:
    """Whether a command is on its tool's allowlist."""

    command: str
    allowed: bool
    entry: str | None = None  #: the entry that permits it
    why: str = ""  #: if it is not allowed

    @property
    def text(self) -> str:
        if self.allowed:
            return (
                f"{self.command} is on the tool's allowlist ({self.entry}), so the program that was"
                " not found is another one, which it tried to start"
            )
        return f"{self.command} is not on the tool's allowlist: {self.why}"


def check_allowlist(call: Call, entry: Entry) -> AllowlistCheck:
    """Look a call up in the allowlist of its tool."""
    scope = entry.tool.scope
    if entry.adapter.cli is not None:
        command, listed = call.program, scope.commands
        found = permitting_entry(listed, call.program, call.arguments)
    else:
        command = call.operation
        listed = scope.endpoints if entry.adapter.kind is AdapterKind.API else scope.commands
        found = permitting_operation(entry, call.operation)
    why = "" if found is not None else f"permitted are {', '.join(listed) or 'none'}"
    return AllowlistCheck(command=command, allowed=found is not None, entry=found, why=why)


def permitting_entry(
    commands: Iterable[str], program: str, arguments: tuple[Argument, ...]
) -> str | None:
    """The entry under which `program` with `arguments` may run; the longest one if several.

    The words of an entry must come first. Among the adapter's own leading arguments, options and
    their values are skipped, but nothing that could itself be a subcommand. Of the caller's
    arguments nothing is skipped: `git -c alias.status=!sh status` is not `git status`, because
    options before a subcommand can change its meaning.
    """
    leading = [
        argument.value
        for argument in arguments
        if not argument.fixed or _COMMAND_WORD.fullmatch(argument.value)
    ]
    permitting = [entry for entry in commands if _begins_with(entry.split(), [program, *leading])]
    return max(permitting, key=lambda entry: len(entry.split()), default=None)


def permitting_operation(entry: Entry, operation: str) -> str | None:
    """The entry of the scope that permits `operation` of an adapter that is not a cli one."""
    scope, adapter = entry.tool.scope, entry.adapter
    if adapter.kind is AdapterKind.MCP and operation == f"mcp:{adapter.interface['server']}":
        return operation  # the server itself, whose command was approved with the tool
    if adapter.kind is not AdapterKind.API:
        # Compiling an adapter approved with its sources is not an operation of its own.
        compiles = adapter.kind is AdapterKind.SDK and operation == COMPILE
        return operation if compiles or operation in scope.commands else None
    method, path = split_endpoint(adapter.interface["endpoint_mapping"][operation])
    url = adapter.interface["base_url"].rstrip("/") + path
    return next((each for each in scope.endpoints if _covers(each, method, url)), None)


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """(method, path template) of an entry of `endpoint_mapping`; the default method is GET."""
    method, _, path = endpoint.rpartition(" ")
    return method or "GET", path


def _covers(permitted: str, method: str, url: str) -> bool:
    only, _, prefix = permitted.rpartition(" ")
    prefix = prefix.rstrip("/")
    return only in ("", method) and (url == prefix or url.startswith((f"{prefix}/", f"{prefix}?")))


def _begins_with(entry: list[str], given: list[str]) -> bool:
    return bool(entry) and given[: len(entry)] == entry
