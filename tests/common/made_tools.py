"""A throwaway project with tools that a test writes itself, approved as a person approves them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actum import Result, Runtime
from actum.evidence.records.evidence_record import EvidenceRecords
from actum.evidence.traces import Traces
from actum.registry.approval_workflow import approve

_DATES = {"author": "platform", "created": "2026-11-15", "updated": "2026-11-15"}
ANY_TEXT = {"type": "string", "x-actum": "literal"}


class MadeTools:
    """The project and what is on record in it."""

    def __init__(self, runtime: Runtime) -> None:
        self.rt = runtime
        self.root = runtime.settings.root

    def add(
        self,
        name: str,
        adapters: Sequence[Mapping[str, Any]],
        *,
        parameters: Mapping[str, Any] | None = None,
        approved: bool = True,
        **tool: Any,
    ) -> Path:
        """Write the tool `name` with these adapters, each given by `cli_adapter`."""
        folder = self.root / "tools" / name
        (folder / "adapters").mkdir(parents=True, exist_ok=True)
        document = {
            "tool_id": f"TL-{name}",
            "name": name,
            "version": "1.0.0",
            "owner": "platform",
            "description": "A tool of a test.",
            "provenance": {
                "repo_url": "https://example.com/test",
                "commit_or_tag": "host",
                "checksum": "per-execution",
                "license": "none",
            },
            "scope": {
                "commands": sorted({each["interface"]["cli"]["executable"] for each in adapters}),
                "endpoints": [],
                "data_access": "write",
                "network": "off",
                "filesystem": ["."],
            },
            "args_schema": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "arguments": {"type": "array", "items": ANY_TEXT},
                    **(parameters or {}),
                },
            },
            "permissions": {"execution": {"runner": "local"}},
            "status": "active",
            "last_review": "2026-11-15",
            "next_review": "2027-05-15",
            **tool,
        }
        (folder / "tool.yaml").write_text(json.dumps(document, indent=1))
        for adapter in adapters:
            written = {**adapter, "tool_id": document["tool_id"]}
            file = folder / "adapters" / f"{adapter['adapter_id']}.yaml"
            file.write_text(json.dumps(written, indent=1))
        if approved:
            self.approve(name)
        return folder

    def approve(self, name: str) -> None:
        keyring = self.rt.keyring
        approve(self.root, keyring, name, by="user:maker", evidence="test", date="2026-11-15")

    def evidence(self, result: Result) -> dict[str, Any]:
        """The evidence record that the execution's reference leads to."""
        (record,) = EvidenceRecords(self.rt.database).of_execution(result.execution_id)
        return record

    def predicate(self, result: Result) -> dict[str, Any]:
        """What the receipt signs."""
        import base64

        envelope = json.loads(Path(result.receipt_path).read_bytes())
        predicate: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
        return predicate

    def audit(self, result: Result) -> list[dict[str, Any]]:
        rows = self.rt.database.rows("SELECT record FROM audit ORDER BY seq")
        records = [json.loads(row[0]) for row in rows]
        return [each for each in records if each.get("execution_id") == result.execution_id]

    def events(self, result: Result, kind: str) -> list[dict[str, Any]]:
        found = Traces(self.rt.database).of_execution(result.execution_id)
        return [event for event in found if event["event_type"] == kind]

    def broken(self) -> list[object]:
        """What `actum verify --all` objects to."""
        findings = self.rt.verifier.verify_all()
        assert findings
        return [finding for finding in findings if not finding.passed]


@contextmanager
def made_tools() -> Iterator[MadeTools]:
    with Runtime.temporary(pool=False) as runtime:
        yield MadeTools(runtime)


def cli_adapter(
    adapter_id: str,
    executable: str = "sh",
    *,
    base_args: Sequence[str] = ("-s", "--"),
    status: str = "active",
    **more: Any,
) -> dict[str, Any]:
    """A cli adapter; `arg_mapping`, `env_mapping`, `transforms`, `errors`, `sandbox_override`."""
    return {
        "adapter_id": adapter_id,
        "name": adapter_id.lower(),
        "version": "1.0.0",
        "type": "cli",
        "interface": {
            "cli": {
                "executable": executable,
                "base_args": list(base_args),
                "arg_mapping": more.pop("arg_mapping", {}),
                "env_mapping": more.pop("env_mapping", {}),
            }
        },
        "metadata": {**_DATES, "status": status},
        **more,
    }
