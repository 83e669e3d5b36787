"""One system call of a work item's own process fails: nothing is lost, and the result is honest.

Calls are told apart by the line of code that makes them. `make test` tries a spread of the lines of
set-up and commit, each at its first call; `make soak` tries every line at its first call, and a
seeded sample of the later calls.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .cells import SEED, SOAK
from .lab import ITEM_RUN, Kind, Lab, hooks

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

_ERRORS = ("EIO", "ENOSPC", "EINVAL", "EPERM")
_SPREAD = 10
_MORE = 60  #: later calls of a soak, in each phase and engine
_PAGE_BYTES = 4_096
#: A work item on this project fails with nothing left and succeeds with plenty.
_ENOUGH_BYTES, _PLENTY_BYTES = 720 << 10, 8 << 20
_KIND = Kind(ITEM_RUN, exclusive=False)


@pytest.fixture(scope="module", params=["overlay", "copy"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("faults"), request.param)
    yield lab
    lab.close()


@pytest.mark.req("002-35", "002-47")
@pytest.mark.parametrize("phase", ["setup", "commit"])
def test_whichever_call_fails_nothing_is_lost_and_the_result_is_honest(
    lab: Lab, phase: str, record_property: Callable[[str, object], None]
) -> None:
    calls = _run(lab, phase, 0, "EIO")[0]["calls"]
    chosen = _chosen(calls)
    assert len(chosen) >= _SPREAD
    failures, ends, struck = [], Counter[str](), 0
    for number, error in zip(chosen, itertools.cycle(_ERRORS), strict=False):
        report, end, wrong = _run(lab, phase, number, error)
        struck += bool(report["struck"])
        ends[end] += 1
        if wrong:
            lines = "\n    ".join(wrong)
            failures.append(f"call {number} of {len(calls)}: {report['struck']}\n    {lines}")
    figure = (
        f"{struck} of {len(calls)} calls at {len(set(calls))} lines of {phase} made to fail on"
        f" {lab.engine}: {dict(ends)}"
    )
    record_property("figure", figure)
    assert not failures, "\n".join(failures)
    assert struck > 0


def _chosen(calls: list[str]) -> list[int]:
    """Numbers of calls, from 1."""
    by_line: dict[str, list[int]] = {}
    for number, call in enumerate(calls, 1):
        by_line.setdefault(call, []).append(number)
    first = [at[0] for at in by_line.values()]
    chance = random.Random(f"{SEED} faults")
    if SOAK:
        rest = sorted(set(range(1, len(calls) + 1)) - set(first))
        return sorted([*first, *chance.sample(rest, min(_MORE, len(rest)))])
    step = len(first) / _SPREAD
    return [first[int((each + chance.random()) * step)] for each in range(_SPREAD)]


def _run(lab: Lab, phase: str, number: int, error: str) -> tuple[dict, str, list[str]]:
    """(what the hook reports, before or after, what is wrong)."""
    unharmed = lab.unharmed(_KIND)
    report = lab.folder / "report.json"
    report.unlink(missing_ok=True)
    fault = {"phase": phase, "at": number, "error": error, "report": str(report)}
    lab.restore(unharmed.template)
    ended = lab.start(unharmed.words, None, hooks(fault=fault))
    committed, wrong = lab.judge(_KIND, ended)
    if not wrong and number % 10 == 0:
        wrong = lab.runs_next()
    if wrong:
        wrong.append(f"it said: {ended.said[-500:]!r}")
    if not report.exists():
        return {"struck": ""}, "before", [*wrong, f"no work item was started: {ended.said}"]
    return json.loads(report.read_text()), "after" if committed else "before", wrong


@pytest.mark.req("002-35", "002-47")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk that is full")
@pytest.mark.parametrize("engine", ["overlay", "copy"])
def test_on_a_full_disk_nothing_is_lost_and_the_result_is_honest(
    engine: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    step = _PAGE_BYTES if SOAK else 14 * _PAGE_BYTES
    own_mounts = ["unshare", "--mount", "--propagation", "private"]
    command = [*own_mounts, sys.executable, "-m", "strikes.full_disk", tmp_path, engine]
    done = subprocess.run(
        [*command, *map(str, range(0, _ENOUGH_BYTES, step)), str(_PLENTY_BYTES)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    committed = sum(trial["committed"] for trial in trials)
    record_property("figure", f"{len(trials)} full disks on {engine}: {committed} committed")
    assert [trial for trial in trials if trial["wrong"]] == []
    assert 0 < committed < len(trials)  # both sides of what a work item needs were tried
