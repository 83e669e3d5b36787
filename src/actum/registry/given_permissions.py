"""The permissions of one run, as the caller of `run_tool` gives them.

They have the form of `permissions` of tool.yaml, and every field may be left out. Reads and checks
the form only; `policy.ceiling` compares them with those of the tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from actum.contract.model import RunnerKind
from actum.documents.document import document_of
from actum.documents.json_schema import check
from actum.errors import ContractInvalid
from actum.registry.load import schema_of
from actum.value import value

FIELD = "effective_permissions"


@value
class GivenPermissions:
    outbound: tuple[str, ...]  #: empty: no network
    read: tuple[str, ...] | None  #: ``None``: not given
    write: tuple[str, ...] | None
    secrets: tuple[str, ...]  #: each one is injected
    runner: RunnerKind | None
    max_duration_s: int | None
    max_memory_mb: int | None
    max_cpu_cores: int | None


def given_permissions(source: Mapping[str, Any]) -> GivenPermissions:
    """Parse strictly; raises `ContractInvalid` with every problem."""
    document = document_of({FIELD: source})
    if problems := check(document, _schema()):
        raise ContractInvalid(problems)
    given = document.value[FIELD]
    files, execution = given.get("filesystem", {}), given.get("execution", {})
    runner = execution.get("runner")
    read, write = files.get("read"), files.get("write")
    return GivenPermissions(
        outbound=tuple(given.get("network", {}).get("outbound") or ()),
        read=None if read is None else tuple(read),
        write=None if write is None else tuple(write),
        secrets=tuple(given.get("secrets", {}).get("allowed", ())),
        runner=None if runner is None else RunnerKind(runner),
        max_duration_s=execution.get("max_duration_sec"),
        max_memory_mb=execution.get("max_memory_mb"),
        max_cpu_cores=execution.get("max_cpu_cores"),
    )


@cache
def _schema() -> Mapping[str, Any]:
    tool = schema_of("tool")
    return {
        "type": "object",
        "properties": {FIELD: tool["properties"]["permissions"]},
        "$defs": tool["$defs"],
    }
