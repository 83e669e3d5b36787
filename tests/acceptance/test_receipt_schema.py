"""Every receipt that Actum makes is valid by the published schema, whatever the outcome.

The validator is a library of others. The published schema is open, as in-toto wants; here every
object of it is closed, so that a field that a receipt has and the schema does not describe fails.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.receipt_schema import PUBLISHED, problems, statement_of

from .terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_command_prints_the_published_schema(tmp_path: Path, name: str) -> None:
    printed = Terminal(tmp_path).actum("schema", name)
    published = json.loads((ROOT / "docs/schemas" / f"{PUBLISHED[name]}.json").read_text())
    assert printed.json == published
    assert published["properties"]["predicateType"]["const"] == published["$id"]


@pytest.fixture(scope="module")
def outcomes(project: Terminal) -> dict[str, dict[str, Any]]:
    """Results of executions that ended in every way, by what they were asked to do."""
    root = project.folder
    file = root / "tools/shell/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    tool["scope"] |= {"network": "off", "filesystem": [".", "/etc"]}
    tool["permissions"]["filesystem"] = {"read": [".", "/etc"], "write": ["."]}
    file.write_text(yaml.safe_dump(tool))
    approved = project.actum("tools", "approve", "shell", "--by", "ada", "--evidence", "test")
    assert approved.code == 0, approved.aside

    def elevated() -> dict[str, Any]:
        return project.shell(
            "cat /etc/hostname",
            *("--set", 'sandbox.filesystem.level="elevated"'),
            *("--set", 'sandbox.filesystem.read=[".", "/etc/hostname"]'),
        ).json

    d2 = ("--set", 'determinism="D2"', "--set", "sandbox.filesystem.write=[]", "--session", "one")
    made = {
        "success": project.shell('echo hi; echo x > made; echo y > "$ACTUM_ARTIFACTS/report"').json,
        "error": project.shell("echo bad >&2; exit 3").json,
        "not found": project.shell("nothing-of-this-name").json,
        "refusal": project.json("exec", "ripgrep", "-p", "pattern=x", "-p", "path=/etc").json,
        "unknown tool": project.json("exec", "no-such-tool").json,
        "timeout": project.shell("while :; do :; done", "--timeout", "1s").json,
        "killed": project.json(
            *("exec", "python", "--stdin", "-", "--memory", "64M"),
            stdin=b"x = bytearray(300 << 20)",
        ).json,
        "signal": project.shell("kill -SEGV $$").json,
        "denied": project.shell("unshare -m true; exit 0").json,
        "held": project.shell("mkdir -p rules; echo x > rules/a").json,
        "discarded": project.shell("echo x > new", "--overlay", "discard").json,
        "waits": elevated(),
        "first": project.shell("echo 1", *d2).json,
        "cached": project.shell("echo 1", *d2).json,
    }
    request = made["waits"]["violations"][0]["value"]
    decided = project.actum("approvals", "approve", request, "--by", "boss", "--why", "looked")
    assert decided.code == 0, decided.aside
    return {**made, "approved": elevated()}


def test_the_outcomes_are_those_that_they_are_called(outcomes: dict[str, dict[str, Any]]) -> None:
    found = {name: result["outcome"] for name, result in outcomes.items()}
    assert found == {
        "success": "SUCCEEDED",
        "error": "TOOL_ERROR",
        "not found": "COMMAND_NOT_FOUND",
        "refusal": "REJECTED",
        "unknown tool": "REJECTED",
        "timeout": "TIMED_OUT",
        "killed": "RESOURCE_KILLED",
        "signal": found["signal"],
        "denied": found["denied"],
        "held": "SUCCEEDED",
        "discarded": "SUCCEEDED",
        "waits": "REJECTED",
        "first": "SUCCEEDED",
        "cached": "SUCCEEDED",
        "approved": "SUCCEEDED",
    }
    assert outcomes["held"]["workspace"]["state"] == "held"
    assert outcomes["cached"]["cached"] == outcomes["first"]["execution_id"]


def test_every_receipt_of_an_execution_is_valid(
    project: Terminal, outcomes: dict[str, dict[str, Any]]
) -> None:
    found, seen = {}, set()
    for name, result in outcomes.items():
        shown = project.json("receipts", "show", result["receipt_id"]).json
        statement = statement_of(shown["envelope"])
        seen |= set(statement["predicate"])
        found[name] = problems("receipt", statement)
    assert found == {name: [] for name in outcomes}
    # Every field that the schema describes was there in at least one of them.
    schema = json.loads((ROOT / "docs/schemas/execution-receipt-v1.json").read_text())
    assert seen == set(schema["properties"]["predicate"]["properties"])


def test_every_receipt_of_a_work_item_is_valid(fresh: Terminal) -> None:
    shutil.copytree(ROOT / "examples/work", fresh.folder, dirs_exist_ok=True)
    extra = {
        "slow": (4, "sleep 60", {"constraints": {"timeout_ms": 2000}}),
        "untested": (5, "echo 1 > one.txt", {"test_command": "false"}),
    }
    found, statuses = {}, set()
    results = fresh.json("work", "work.yaml").json["results"]
    for name, (number, script, more) in extra.items():
        agent = {"agent_id": f"agent-{number}", "steps": [{"tool": "shell", "stdin": script}]}
        (fresh.folder / f"agents/agent-{number}.yaml").write_text(yaml.safe_dump(agent))
        item = {"id": name, "agent_id": f"agent-{number}", "description": "An item", **more}
        (fresh.folder / f"{name}.yaml").write_text(yaml.safe_dump(item))
        ran = fresh.json("item", "run", f"{name}.yaml")
        assert "receipt_id" in ran.json, ran
        results[name] = ran.json
    for name, result in results.items():
        shown = fresh.json("receipts", "show", result["receipt_id"]).json
        statement = statement_of(shown["envelope"])
        statuses.add(statement["predicate"]["status"])
        found[name] = problems("work-receipt", statement)
    assert found == {name: [] for name in results}
    assert statuses == {"success", "denied", "failure", "timeout"}


def test_receipts_of_runs_are_valid(fresh: Terminal) -> None:
    shutil.copytree(ROOT / "examples/work", fresh.folder, dirs_exist_ok=True)
    failed = fresh.json("work", "work.yaml").json
    queued = fresh.actum("runs", "submit", "work.yaml").text.strip()
    fresh.actum("runs", "cancel", queued)
    statuses = {}
    for run_id in (failed["run_id"], queued):
        receipt_id = fresh.json("runs", "status", run_id).json["receiptId"]
        shown = fresh.json("receipts", "show", receipt_id).json
        statement = statement_of(shown["envelope"])
        statuses[statement["predicate"]["status"]] = problems("run-receipt", statement)
    assert statuses == {"failed": [], "cancelled": []}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("predicate", "outcome"), "FINE"),
        (("predicate", "contract", "sha256"), "short"),
        (("predicate", "extra"), 1),
        (("predicateType",), "urn:actum:work-receipt:v1"),
        (("subject",), []),
        (("subject", 0, "digest"), {"sha256": "0" * 64, "blake3": "0" * 64}),
    ],
)
def test_a_statement_of_another_shape_is_not_valid(
    project: Terminal, outcomes: dict[str, dict[str, Any]], path: tuple[Any, ...], value: Any
) -> None:
    shown = project.json("receipts", "show", outcomes["success"]["receipt_id"]).json
    statement = statement_of(shown["envelope"])
    assert problems("receipt", statement) == []
    *way, last = path
    holder = statement
    for step in way:
        holder = holder[step]
    holder[last] = value
    assert problems("receipt", statement)


def test_the_schema_of_the_package_is_the_published_one() -> None:
    for stem in PUBLISHED.values():
        (own,) = (ROOT / "src/actum").rglob(f"schemas/{stem}.json")
        assert own.read_bytes() == (ROOT / "docs/schemas" / f"{stem}.json").read_bytes()
