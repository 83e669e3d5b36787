"""What a runner says was left, and how full scratch was: looked at, not assumed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.capture.model import Enforced
from actum.execution.result import Result
from actum.sandbox import sweep
from hostile.jail import tools_in

pytestmark = pytest.mark.sandbox

_MIB = 1 << 20


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime.temporary() as runtime:
        yield runtime


def _row(result: Result, limit: str) -> Enforced:
    return next(row for row in result.enforcement if row.limit == limit)


def _cleanup(runtime: Runtime, result: Result) -> dict[str, Any]:
    (record,) = runtime.database.row(
        "SELECT document FROM evidence_records WHERE execution_id = ?", (result.execution_id,)
    ) or (None,)
    items = json.loads(record)["checklists"]["post_execution"]
    found: dict[str, Any] = next(item for item in items if item["item"] == "Cleanup performed")
    return found


@pytest.mark.req("000-187", "000-188")
def test_cleaning_up_passes_because_nothing_was_found(runtime: Runtime):
    result = runtime.exec("shell", stdin="sleep 99 & echo done")
    assert _cleanup(runtime, result)["verdict"] == "pass"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to move a process of its own into a group")
@pytest.mark.req("000-188")
def test_a_group_that_cannot_be_removed_is_named_in_the_record(runtime: Runtime):
    intruder = subprocess.Popen(["sleep", "100"])
    entered: list[str] = []

    def intrude(_stream: str, _chunk: bytes) -> None:
        mark = f"-{os.getpid()}-"
        for parent in sweep._group_parents():
            for name in os.listdir(parent):
                # The one with the tool in it; others are being prepared.
                folder = Path(parent, name)
                if mark in name and tools_in(folder):
                    (folder / "cgroup.procs").write_text(str(intruder.pid))
                    entered.append(str(folder))
        (told / "entered").touch()

    work, told = (runtime.settings.root / name for name in ("work", "told"))
    work.mkdir()
    told.mkdir()
    script = f"echo here; until [ -e {told}/entered ]; do sleep 0.01; done"
    try:
        result = runtime.exec("shell", stdin=script, cwd=work, on_output=intrude)
    finally:
        intruder.kill()
        intruder.wait()
    assert result.ok
    verdict = _cleanup(runtime, result)
    assert verdict["verdict"] == "fail"
    assert any(folder in verdict["detail"] for folder in entered), (verdict, entered)
    for folder in entered:
        # The runtime's own cleanup may remove the folder first: it is empty now.
        with suppress(FileNotFoundError):
            os.rmdir(folder)


@pytest.mark.req("000-180")
@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_scratch_that_was_taken_is_shown_even_if_it_was_given_back(runtime: Runtime, place: str):
    script = f"head -c {3 * _MIB} /dev/zero > {place}/x; sleep 0.5; rm {place}/x"
    row = _row(runtime.exec("shell", stdin=script), "scratch_bytes")
    assert row.peak is not None
    assert 3 * _MIB <= row.peak < 4 * _MIB
    assert not row.tripped


@pytest.mark.req("000-180")
def test_scratch_that_was_full_is_told_as_reached(runtime: Runtime):
    script = f"head -c {64 * _MIB} /dev/zero > /tmp/x || echo full; rm -f /tmp/y"
    result = runtime.exec("shell", stdin=script, set={"sandbox.memory_mb": 64})
    row = _row(result, "scratch_bytes")
    assert result.result and result.result.stdout == "full\n"
    assert (str(row.peak), row.tripped) == (row.requested, True)


def test_artifacts_show_what_they_took(runtime: Runtime):
    result = runtime.exec("shell", stdin=f"head -c {_MIB} /dev/zero > /artifacts/x")
    row = _row(result, "artifacts_bytes")
    assert (row.peak, row.tripped) == (_MIB, False)
    over = runtime.exec("shell", stdin=f"head -c {11 * _MIB} /dev/zero > /artifacts/x")
    row = _row(over, "artifacts_bytes")
    assert (row.peak, row.tripped) == (11 * _MIB, True)
