"""The allowlist of a tool: which entry of its scope, if any, permits what a call would do.

For a cli adapter an entry of `scope.commands` is a program (`rg`: with any arguments) or a program
and its leading words (`git status`). For sdk and mcp adapters it is the name of an operation. For
api adapters an entry of `scope.endpoints` is a URL, optionally after an HTTP method: it permits
itself and what lies below it. Nothing is permitted by default, and an empty list permits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from actum.contract.call import Argument
from actum.registry.model import COMPILE, AdapterKind, Entry

_COMMAND_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def permitting_entry(
    commands: Iterable[str], program: str, arguments: tuple[Argument, ...]
) -> str | None:
    """The entry under which `program` with `arguments` may run; the longest one if several.

    The words of an entry must come first. Of what the adapter itself puts before them, options and
    their values are skipped, but nothing that could itself be a subcommand. Of what the caller
    gives, nothing is skipped: `git -c alias.status=!sh status` is not `git status`, because what
    stands before a subcommand can change what the subcommand means.
    """
    spoken = [
        argument.value
        for argument in arguments
        if not argument.fixed or _COMMAND_WORD.fullmatch(argument.value)
    ]
    permitting = [entry for entry in commands if _begins_with(entry.split(), [program, *spoken])]
    return max(permitting, key=lambda entry: len(entry.split()), default=None)


def permitting_operation(entry: Entry, operation: str) -> str | None:
    """The entry of the scope under which an adapter that is no cli one may do `operation`."""
    scope, adapter = entry.tool.scope, entry.adapter
    if adapter.kind is AdapterKind.MCP and operation == f"mcp:{adapter.interface['server']}":
        return operation  # the server itself, whose command was approved with the tool
    if adapter.kind is not AdapterKind.API:
        # To compile an adapter that was approved with its sources is no operation of its own.
        compiles = adapter.kind is AdapterKind.SDK and operation == COMPILE
        return operation if compiles or operation in scope.commands else None
    method, path = split_endpoint(adapter.interface["endpoint_mapping"][operation])
    url = adapter.interface["base_url"].rstrip("/") + path
    return next((each for each in scope.endpoints if _covers(each, method, url)), None)


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """(method, path template) of an entry of `endpoint_mapping`; without a method it is GET."""
    method, _, path = endpoint.rpartition(" ")
    return method or "GET", path


def _covers(permitted: str, method: str, url: str) -> bool:
    only, _, prefix = permitted.rpartition(" ")
    prefix = prefix.rstrip("/")
    return only in ("", method) and (url == prefix or url.startswith((f"{prefix}/", f"{prefix}?")))


def _begins_with(entry: list[str], spoken: list[str]) -> bool:
    return bool(entry) and spoken[: len(entry)] == entry
