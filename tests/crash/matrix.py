"""Runs cases through the driver and says what is wrong with what it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from .points import BY_NAME, CLOSED, NOTHING, OPEN

DRIVER = Path(__file__).with_name("driver.py")
SOAK = os.environ.get("ACTUM_SOAK") == "1"
_ON_RECORD = {NOTHING: [], OPEN: ["PENDING"], CLOSED: ["FINAL"]}

Case = dict[str, Any]
Report = dict[str, Any]


def make_template(folder: Path) -> None:
    command = [sys.executable, "-m", "actum.doors.cli.main", "init", str(folder / "template")]
    subprocess.run([*command, "--runner", "local"], check=True, capture_output=True)


def count(folder: Path) -> dict[str, Any]:
    """How many moments there are, by victim."""
    command = [sys.executable, str(DRIVER), str(folder), "count"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    totals: dict[str, Any] = json.loads(done.stdout)
    return totals


def run(folder: Path, cases: Iterable[Case]) -> list[Report]:
    listed = list(cases)
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(folder), json.dumps(listed)],
        capture_output=True,
        text=True,
        check=False,
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) == len(listed), done.stderr[-4_000:]
    return reports


def spread(total: int, wanted: int, *, late: bool = False) -> list[int]:
    """`wanted` of the moments 1..total, evenly; all of them in a soak.

    With `late` most are from the last third: before that a process opens and reads, and has
    nothing to lose.
    """
    if SOAK or wanted >= total:
        return list(range(1, total + 1))
    if late:
        border = 2 * total // 3
        early = spread(border, wanted // 4)
        return early + [border + at for at in spread(total - border, wanted - len(early))]
    return sorted({1 + index * total // wanted for index in range(wanted)})


def problems(report: Report) -> list[str]:
    """Everything about one case that is not as promised."""
    found = [f"left behind: {each}" for each in report["left"]]
    answer = report["answer"]
    if report["next_status"] != 0 or answer is None:
        return [*found, f"the next command failed: {report['next_status']}"]
    found += [f"does not verify: {each}" for each in answer["wrong"]]
    if answer["open"]:
        found.append(f"{answer['open']} records are still open")
    if answer["next"] != "SUCCEEDED":
        found.append(f"the next execution ended as {answer['next']}")
    found += _of_changes(report)
    if len(report["found"]) != len(report["became"]):
        found.append("a record is gone")
    for state, (state_now, outcome, reasons) in zip(
        report["found"], report["became"], strict=False
    ):
        if state_now != "FINAL":
            found.append(f"a record stayed {state_now}")
        if state == "PENDING" and (outcome, reasons) != ("EXCEPTION", ["INTERRUPTED"]):
            found.append(f"an interrupted execution was closed as {outcome} {reasons}")
    victim = report["case"]["victim"]
    found += _of_actum(report) if victim == "actum" else _of_others(report)
    return [f"{report['case']} {report['said']}: {each}" for each in found]


def _of_changes(report: Report) -> list[str]:
    """The changes of each execution are in the project wholly or not at all, and the next one's
    come on top of them."""
    before, after = report["changes"]
    states = [_times(before), _times(after), _times(report["changes_next"])]
    if None in states:
        return [f"changes were committed in part: {before}, then {after}"]
    lives, expected = [now - then for then, now in pairwise(states)], _committed(report)
    if lives[0] not in expected or lives[1] != 1:
        return [f"changes were lost or made twice: {lives}, not {expected} and 1"]
    return []


def _times(numbers: list[str]) -> int | None:
    """How often the changes were made; ``None`` if some of them were made more often than others.
    Two files, one folder and the file in it have the number; before the first time none exists."""
    if not numbers:
        return 0
    return int(numbers[0]) if len(numbers) == 4 and len(set(numbers)) == 1 else None


def _committed(report: Report) -> tuple[int, ...]:
    """How many executions of the struck life may have left their changes in the project."""
    case = report["case"]
    if case.get("temporary") or case.get("snippet"):
        return (0,)
    if case["victim"] != "actum":
        return (json.loads(report["said"])["answers"].count("SUCCEEDED"),)
    if "point" in case:
        names = list(BY_NAME)
        place, intent = names.index(case["point"]), names.index("intent")
        return (int(place > intent or (place == intent and case["when"] == "after")),)
    return (1,) if report["found"] == ["FINAL"] else (0, 1)


def _of_actum(report: Report) -> list[str]:
    if not report["killed"]:
        # The last moments of a run may come a few earlier or later.
        unharmed = report["exit_code"] == 0 and "point" not in report["case"]
        return [] if unharmed else [f"not struck: exit code {report['exit_code']}"]
    if "point" in report["case"]:
        expected = getattr(BY_NAME[report["case"]["point"]], report["case"]["when"])
        if report["found"] != _ON_RECORD[expected]:
            return [f"on record: {report['found']}, not {expected}"]
    return []


def _of_others(report: Report) -> list[str]:
    """The runtime is alive and has to tell the truth about the one, and go on with the next."""
    if report["killed"] or report["exit_code"] != 0:
        return [f"the runtime itself ended: {report['exit_code']}"]
    answers = json.loads(report["said"])["answers"]
    on_record = {
        "SUCCEEDED": "SUCCEEDED",  # it had ended already
        "SANDBOX_UNAVAILABLE": "EXCEPTION",
        "TOOL_ERROR": "TOOL_ERROR",  # killed on the way from our code to the tool
    }
    expected = sorted(on_record.get(answer, "?") for answer in answers)
    outcomes = sorted(outcome for _, outcome, _ in report["became"])
    found = []
    if answers[-1] != "SUCCEEDED" or answers.count("SUCCEEDED") < len(answers) - 1:
        found.append("one strike was felt more than once, or to the end")
    if outcomes != expected:
        found.append(f"on record: {outcomes}")
    if report["case"].get("slow") and answers[0] != "SANDBOX_UNAVAILABLE":
        found.append("a tool whose sandbox was struck while it ran did not end in a fault")
    return found
