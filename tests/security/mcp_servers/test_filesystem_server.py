"""ADP-003, as the contract writes it, against the server from npm that it is about."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum import Outcome, Result, Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.settings import load

from .project import pin, small, tool

pytestmark = pytest.mark.sandbox

TESTS = Path(__file__).parents[2]
ADP_003 = TESTS / "unit" / "registry" / "data" / "ADP-003.yaml"
INSTALLED = TESTS.parent / ".venv" / "npm"
ENTRY = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"


@pytest.fixture(scope="module")
def rt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    if not (INSTALLED / "installed").exists():
        pytest.skip("scripts/npm-servers could not install the server")
    root = tmp_path_factory.mktemp("filesystem") / "project"
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    shutil.copytree(INSTALLED / "node_modules", root / "node_modules", copy_function=_place)
    folder = root / "tools" / "mcp-filesystem"
    (folder / "adapters").mkdir(parents=True)
    shutil.copyfile(ADP_003, folder / "adapters" / "mcp-filesystem.yaml")
    text = {"type": "string", "x-actum": "literal"}
    path = {"type": "string", "x-actum": "path"}
    described = tool(
        ["read_file", "write_file", "list_directory"],
        tool_id="TL-200",
        name="mcp-filesystem",
        args_schema={"type": "object", "properties": {"path": path, "content": text}},
        servers={
            "filesystem-server": {"command": ["node", f"{{root}}/{ENTRY}", "{working_directory}"]}
        },
    )
    (folder / "tool.yaml").write_text(yaml.safe_dump(described))
    pin(root, "TL-200")
    (root / "work").mkdir()
    with Runtime(load(root / ".actum", {"LOGNAME": "test"})) as runtime:
        yield runtime


def _place(source: str, target: str) -> None:
    """The same file once more, where that is possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def ask(rt: Runtime, operation: str, **parameters: Any) -> Result:
    return rt.exec(
        f"mcp-filesystem:{operation}", cwd=rt.settings.root / "work", parameters=parameters
    )


@pytest.mark.req("000-147", "000-148", "000-149", "000-150")
def test_files_are_written_read_and_listed(rt: Runtime) -> None:
    work = rt.settings.root / "work"
    written = ask(rt, "write_file", path=str(work / "notes.txt"), content="a; $b\n")
    assert written.outcome is Outcome.SUCCEEDED, (written.violations, written.result)
    assert (work / "notes.txt").read_text() == "a; $b\n"
    read = ask(rt, "read_file", path=str(work / "notes.txt"))
    assert read.output == [{"type": "text", "text": "a; $b\n"}]
    listed = ask(rt, "list_directory", path=str(work))
    assert "notes.txt" in json.dumps(listed.output)


@pytest.mark.req("000-109")
def test_what_the_server_offers_and_the_adapter_does_not_map_is_refused(rt: Runtime) -> None:
    result = ask(rt, "move_file", source="a", destination="b")
    assert result.reason_codes == ("OPERATION_UNKNOWN",)


@pytest.mark.req("000-152")
def test_it_runs_within_the_limits_of_the_adapter(rt: Runtime) -> None:
    result = ask(rt, "list_directory", path=str(rt.settings.root / "work")).check()
    rows = {row.limit: row for row in result.enforcement}
    limits = [rows[name] for name in ("timeout_ms", "memory_mb", "network")]
    assert [row.requested for row in limits] == ["10000", "128", "none"]
    assert all(row.enforced and row.mechanism for row in limits)
    peak = rows["memory_mb"].peak
    assert peak is not None
    assert 0 < peak <= 128 << 20


@pytest.mark.req("000-152")
def test_a_server_that_needs_more_memory_than_the_adapter_has_is_killed(rt: Runtime) -> None:
    big = rt.settings.root / "work" / "big.txt"
    big.write_bytes(b"x" * (120 << 20))
    try:
        result = ask(rt, "read_file", path=str(big))
    finally:
        big.unlink()
    assert result.outcome is Outcome.RESOURCE_KILLED
    tripped = {row.limit for row in result.enforcement if row.tripped}
    assert tripped - {"cpu_cores"} == {"memory_mb"}  # a busy server may be throttled as well


def test_a_path_outside_is_refused_before_the_server_is_asked(rt: Runtime) -> None:
    assert ask(rt, "read_file", path="/etc/passwd").reason_codes == ("IV_03",)


def test_a_missing_file_is_the_tools_own_error(rt: Runtime) -> None:
    result = ask(rt, "read_file", path=str(rt.settings.root / "work" / "missing"))
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.result is not None
    assert json.loads(result.result.stdout)["isError"] is True


@pytest.mark.req("000-151")
def test_only_a_server_that_was_gone_is_asked_again(tmp_path: Path) -> None:
    """With the `errors` of ADP-003, and a server that can be made to die."""
    errors = yaml.safe_load(ADP_003.read_text())["errors"]
    with small(tmp_path / "project", when="once", errors=errors) as rt:
        work = rt.settings.root / "work"
        began = time.monotonic()
        result = rt.exec("small:echo", cwd=work, parameters={"text": "x"})
        assert (result.outcome, result.attempts) == (Outcome.SUCCEEDED, 2)
        assert time.monotonic() - began >= 0.5
        assert (work / "starts").read_text() == "xx"
        answered = rt.exec("small:fail", cwd=work)
        assert (answered.outcome, answered.attempts) == (Outcome.TOOL_ERROR, 1)
        # It heard the question, and nobody said that it may be asked twice.
        unsure = rt.exec("small:misbehave", cwd=work, parameters={"text": "die"})
        assert (unsure.outcome, unsure.attempts) == (Outcome.TOOL_ERROR, 1)
