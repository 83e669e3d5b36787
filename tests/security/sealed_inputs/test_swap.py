"""A neighbour replaces an input file all the time. The tool reads what the receipt signs, or the
execution says that it may not have."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Outcome
from actum.evidence.records.audit import Decision
from actum.execution import plan as planning
from hostile.sealed_project import Sealed, signed_input_digest

pytestmark = pytest.mark.sandbox

RUNS = 60
_SIZE = 40_000
CONTENTS = {name: (name * _SIZE).encode() for name in "AB"}
DIGESTS = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}

_BY_RENAME = """
import os, sys
path = sys.argv[1]
while True:
    for name in "AB":
        with open(path + ".next", "w") as file:
            file.write(name * int(sys.argv[2]))
        os.replace(path + ".next", path)
"""
_IN_PLACE = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY)
while True:
    for name in b"AB":
        os.pwrite(file, bytes([name]) * int(sys.argv[2]), 0)
"""
SWAPS = {"by rename": _BY_RENAME, "in place": _IN_PLACE}
#: Reads the file three times while the neighbour goes on.
_READ = "for n in 1 2 3; do sha256sum < input | cut -d' ' -f1; sleep 0.005; done"


@contextlib.contextmanager
def swapping(path: Path, how: str) -> Iterator[None]:
    path.write_bytes(CONTENTS["A"])
    words = [sys.executable, "-c", SWAPS[how], str(path), str(_SIZE)]
    neighbour = subprocess.Popen(words)
    try:
        yield
    finally:
        neighbour.kill()
        neighbour.wait()


@pytest.mark.parametrize("how", SWAPS)
def test_the_control_without_a_seal_other_bytes_are_read_than_were_digested(
    tmp_path: Path, how: str
) -> None:
    path, deadline = tmp_path / "input", time.monotonic() + 60
    with swapping(path, how):
        while True:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            script = ["/bin/sh", "-c", _READ]
            said = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True)
            if set(said.stdout.split()) != {digest}:
                return
            assert time.monotonic() < deadline, "the neighbour changes nothing"


@pytest.mark.parametrize("how", SWAPS)
def test_what_is_read_is_what_is_signed(kept_mode: Sealed, how: str) -> None:
    path, signed = kept_mode.work / "input", Counter[str]()
    with swapping(path, how):
        while signed.total() < RUNS or len(signed) < 2:
            contract = kept_mode.asked(_READ, path)
            result = kept_mode.runtime.execute(contract)
            assert result.ok, (result.violations, result.reason_codes, result.result)
            (said,) = set(kept_mode.said(result).split())
            expected = planning.input_digest(contract, (("", said),))
            assert signed_input_digest(result) == expected
            signed[said] += 1
            assert result.workspace is None or result.workspace.state == "unchanged"
    assert kept_mode.copies() == []


def test_written_directly_a_lost_seal_is_found_and_the_execution_fails(direct: Sealed) -> None:
    path, ends, deadline = direct.work / "input", Counter[str](), time.monotonic() + 60
    with swapping(path, "by rename"):
        while ends.total() < RUNS or not ends["lost"]:
            assert time.monotonic() < deadline, ends
            contract = direct.asked(_READ, path)
            result = direct.runtime.execute(contract)
            if result.result is None:
                assert result.reason_codes == ("PATH_CHANGED",), result.violations
                ends["refused"] += 1
            elif result.ok:
                (said,) = set(direct.said(result).split())
                expected = planning.input_digest(contract, (("", said),))
                assert signed_input_digest(result) == expected
                ends["read"] += 1
            else:
                assert result.outcome is Outcome.EXCEPTION
                assert result.reason_codes == ("EXECUTOR_EXCEPTION", "INPUT_SEAL_LOST")
                ends["lost"] += 1
    assert direct.copies() == []


def test_written_directly_a_change_in_place_is_not_seen(direct: Sealed) -> None:
    path, signed = direct.work / "input", Counter[str]()
    with swapping(path, "in place"):
        while signed.total() < RUNS or len(signed) < 2:
            contract = direct.asked(_READ, path)
            result = direct.runtime.execute(contract)
            assert result.ok, (result.violations, result.reason_codes, result.result)
            (said,) = set(direct.said(result).split())
            assert signed_input_digest(result) == planning.input_digest(contract, (("", said),))
            signed[said] += 1


def test_an_approval_for_one_content_never_runs_another(kept_mode: Sealed) -> None:
    """Only requests that show content A are approved; all that ever runs has read A."""
    path, ran, refused = kept_mode.work / "input", 0, 0
    approvals = kept_mode.runtime.approvals
    limits = {"sandbox.filesystem.level": "elevated"}
    if kept_mode.mode == "transaction":
        limits["sandbox.filesystem.write"] = [str(kept_mode.work)]
    with swapping(path, "by rename"):
        while ran < 20:
            result = kept_mode.with_input(_READ, path, limits=limits)
            if result.result is None:
                assert result.reason_codes == ("APPROVAL_REQUIRED",), result.violations
                request = approvals.find(result.violations[0].value)
                call = approvals.call_of(request)
                assert call is not None
                (file,) = call["call"]["files"]
                if file["sha256"] == DIGESTS["A"] and request.state == "pending":
                    approvals.decide(
                        request.request_id, Decision.ALLOW, by="user:boss", why="content A"
                    )
                refused += 1
                continue
            assert set(kept_mode.said(result).split()) == {DIGESTS["A"]}
            ran += 1
    assert refused >= ran  # each approval is for one execution


def test_the_second_run_of_d2_and_the_result_cache_see_the_sealed_bytes(read_only: Sealed) -> None:
    path, seen = read_only.root / "input", set[str]()
    script = f"sha256sum < {path} | cut -d' ' -f1"
    with swapping(path, "in place"):
        for _ in range(20):
            contract = read_only.asked(
                script,
                path,
                limits={
                    "determinism": "D2",
                    "sandbox.filesystem.level": "standard",
                    "sandbox.filesystem.write": [],
                },
            )
            result = read_only.runtime.execute(contract)
            assert result.ok, (result.violations, result.result)
            assert result.determinism is not None
            assert result.determinism["verified"] == "MATCH", result.determinism
            said = read_only.said(result)
            assert signed_input_digest(result) == planning.input_digest(contract, (("", said),))
            seen.add(said)
    assert os.listdir(read_only.root / ".actum" / "inputs") == []
