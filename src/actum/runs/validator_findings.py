"""What validators found, and the signature by which repeated findings are recognised.

A validator is an execution. One that succeeds has passed. One that fails may print a JSON list of
findings (objects with a code, and a path or file name) on its stdout; otherwise its exit code is
its only finding. Its output is the tool's: it is counted and compared, and nothing in it is obeyed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from actum.contract.canonical import sha256_json
from actum.contract.model import Json
from actum.value import value

#: Findings of one validator that are told apart; the rest is counted.
_MOST = 1_000
_TEXT = 500
_CODES = ("code", "rule", "rule_id", "ruleId", "check_id")
_PATHS = ("path", "file", "filename", "filePath")


@value(kw_only=False, order=True)
class Finding:
    validator: str
    code: str
    path: str = ""

    def document(self) -> dict[str, Json]:
        return {"validator": self.validator, "code": self.code, "path": self.path}


def findings_of(validator: str, exit_code: int | None, stdout: str) -> tuple[Finding, ...]:
    """The findings of a validator that did not succeed: at least one."""
    try:
        listed: Any = json.loads(stdout)
    except (ValueError, RecursionError):  # nested too deeply for the parser
        listed = None
    if not isinstance(listed, list) or not listed:
        return (Finding(validator, f"exit:{exit_code}"),)
    found = [
        Finding(validator, _first(each, _CODES) or "finding", _first(each, _PATHS))
        for each in listed[:_MOST]
    ]
    return tuple(sorted(found))


def _first(found: object, names: Sequence[str]) -> str:
    if not isinstance(found, Mapping):
        return ""
    text = next((str(found[name])[:_TEXT] for name in names if found.get(name)), "")
    return text.encode("utf-8", "replace").decode()  # half a character has no digest


def signature_of(findings: Sequence[Finding]) -> str:
    """Equal for equal findings, in whatever order they were printed."""
    return sha256_json([[each.validator, each.code, each.path] for each in sorted(findings)])
