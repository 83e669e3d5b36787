"""Small, valid values for the tests of policy and adapters; each test changes what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from actum.contract.model import (
    Contract,
    ExpectedOutputs,
    Inputs,
    Metadata,
    RunnerKind,
    SandboxRequest,
)
from actum.registry.model import (
    Adapter,
    AdapterKind,
    AdapterStatus,
    CliInterface,
    Entry,
    Permissions,
    Pin,
    Retry,
    SandboxOverride,
    Scope,
    Tool,
    ToolStatus,
    Transform,
)

RIPGREP_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "x-actum": "literal"},
        "path": {"type": "string", "x-actum": "path"},
        "ignore_case": {"type": "boolean"},
        "max_count": {"type": "integer", "minimum": 1},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}


def make_scope(**changes: Any) -> Scope:
    values: dict[str, Any] = {
        "commands": ("rg",),
        "endpoints": (),
        "data_access": "write",
        "network": False,
        "hosts": (),
        "filesystem": (".",),
    }
    return Scope(**values | changes)


def make_permissions(**changes: Any) -> Permissions:
    values: dict[str, Any] = {
        "outbound": (),
        "read": None,
        "write": None,
        "secrets": (),
        "runner": RunnerKind.LOCAL,
        "max_duration_s": None,
        "max_memory_mb": None,
        "max_cpu_cores": None,
    }
    return Permissions(**values | changes)


def make_cli(**changes: Any) -> CliInterface:
    """ADP-001 as the seed writes it."""
    values: dict[str, Any] = {
        "executable": "rg",
        "base_args": ("--json", "--no-heading"),
        "arg_mapping": {
            "pattern": "{pattern}",
            "path": "{path}",
            "ignore_case": "-i",
            "max_count": "-m {value}",
        },
        "env_mapping": {},
    }
    return CliInterface(**values | changes)


def make_entry(
    *,
    cli: CliInterface | None = None,
    scope: Scope | None = None,
    permissions: Permissions | None = None,
    override: SandboxOverride | None = None,
    args_schema: Mapping[str, Any] = RIPGREP_SCHEMA,
    environment: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
    input_transforms: tuple[Transform, ...] = (),
    output_transforms: tuple[Transform, ...] = (Transform(type="parse", spec="json_lines"),),
) -> Entry:
    tool = Tool(
        tool_id="TL-003",
        name="ripgrep",
        version="14.1.0",
        owner="platform",
        description="search",
        provenance={},
        scope=scope or make_scope(),
        args_schema=args_schema,
        permissions=permissions or make_permissions(),
        environment=environment,
        path=path,
        artifacts=(),
        status=ToolStatus.ACTIVE,
        last_review="2026-01-16",
        next_review="2027-01-16",
        folder="/nowhere/tools/ripgrep",
    )
    adapter = Adapter(
        adapter_id="ADP-001",
        name="ripgrep-search",
        version="1.0.0",
        tool_id="TL-003",
        kind=AdapterKind.CLI,
        cli=cli or make_cli(),
        interface={},
        input_transforms=input_transforms,
        output_transforms=output_transforms,
        retry=Retry(max_attempts=1, backoff_ms=0, retryable_codes=()),
        fallback=None,
        override=override or SandboxOverride(),
        author="someone",
        created="2026-01-16",
        updated="2026-01-16",
        status=AdapterStatus.ACTIVE,
        sha256="a" * 64,
    )
    pin = Pin(
        tool_id="TL-003",
        name="ripgrep",
        version="14.1.0",
        digest="b" * 64,
        status=ToolStatus.ACTIVE,
        approver="user:approver",
        date="2026-01-16",
        evidence="review 1",
        adapters={"ADP-001": "1.0.0"},
    )
    return Entry(tool=tool, adapter=adapter, pin=pin)


def make_contract(
    *,
    sandbox: SandboxRequest | None = None,
    outputs: ExpectedOutputs | None = None,
    **inputs: Any,
) -> Contract:
    return Contract(
        execution_id="2b0d2a52-6f63-4a56-9f6d-0d5b3d2a1c11",
        tool_id="TL-003",
        adapter_id="ADP-001",
        inputs=Inputs(**{"command": "rg"} | inputs),
        sandbox=sandbox or SandboxRequest(),
        outputs=outputs or ExpectedOutputs(),
        metadata=Metadata(
            requested_by="user:tester",
            requested_at=datetime(2026, 1, 16, tzinfo=UTC),
            purpose="test",
        ),
    )
