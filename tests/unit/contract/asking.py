"""Contracts to test with: the smallest one, and how to vary it."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from actum.contract.defaults import Fill, complete
from actum.contract.model import Contract
from actum.contract.parse import parse_contract
from actum.errors import ContractInvalid, Problem

FILL = Fill(
    execution_id="filled-1",
    requested_at=datetime(2026, 1, 16, 9, 30, tzinfo=UTC),
    requested_by="user:ada",
    purpose="actum exec TL-003",
    working_directory="/repo/app",
)

SMALLEST: dict[str, Any] = {"tool_id": "TL-003", "inputs": {"command": "rg"}}

FULL = """\
execution_id: run-7
tool_id: TL-003
adapter_id: ADP-001
inputs:
  command: rg
  arguments: ["-n", "needle"]
  parameters: {pattern: needle, depth: 3, ratio: 0.5, flags: [a, b]}
  environment: {LANG: C}
  working_directory: /repo/app
  input_files: [src/a.txt]
  stdin: "some text\\n"
sandbox:
  timeout_ms: 5000
  memory_mb: 256
  cpu_cores: 2
  filesystem: {level: extended, read: [/repo], write: [out], deny: [/repo/secret]}
  network: {level: api, enabled: true, allow: [api.example.com], deny: [bad.example.com]}
  processes: {max_children: 4, allow_fork: true}
outputs:
  stdout: expected
  stderr: captured
  exit_code: 0
  output_files: [out/report.txt]
  artifacts: [log.txt, {name: report, path: report.json, type: json}]
metadata:
  requested_by: agent:planner
  requested_at: 2026-01-16T10:30:00+01:00
  purpose: find the needle
  evidence_ref: EVD-1
determinism: D1
session: s-1
"""


def asked(**fields: Any) -> dict[str, Any]:
    """The smallest contract with some dotted fields set: ``asked(sandbox__timeout_ms=5)``."""
    document = copy.deepcopy(SMALLEST)
    for name, value in fields.items():
        *sections, key = name.split("__")
        section = document
        for step in sections:
            section = section.setdefault(step, {})
        section[key] = value
    return document


def contract(**fields: Any) -> Contract:
    return complete(parse_contract(asked(**fields)), FILL)


def problems_of(source: Any, file: str = "") -> tuple[Problem, ...]:
    """What parsing says is wrong; a sound contract is a failure of the test."""
    try:
        draft = parse_contract(source, file=file)
    except ContractInvalid as invalid:
        return invalid.problems
    raise AssertionError(f"accepted: {draft}")
