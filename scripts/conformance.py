"""Which rows of docs/requirements.md are proven, by which tests.

A test names the rows it proves: ``@pytest.mark.req("000-58")``. A row is *proven* when a test that
names it passed, and none that names it failed, in a run of exactly these sources. A skipped test
proves nothing. Without such a run the counts are of marks only, and the report says so.

After the rows comes a table of the runners: the result of each check of `actum.testing` and of each
limit on each runner in that run. Tests in tests/conformance fill its cells (`fill_cells` in its
conftest.py).

`tests/conftest.py` uses `record` after every run; `make conformance` prints the report.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "docs" / "requirements.md"
RECORD = ROOT / "build" / "conformance.json"

_ROW = re.compile(r"- REQ-(\d{3}-\d+) \| seed \d{3} L\d+ \| [MTSCEI] \| (.+)")

#: nodeid -> (rows it names, "passed" | "failed" | "skipped")
Outcomes = Mapping[str, tuple[tuple[str, ...], str]]
#: nodeid -> cells of the table of runners: (runner, row, text)
Cells = Mapping[str, list[tuple[str, str, str]]]


def requirement_rows() -> dict[str, str]:
    """Row number -> wording, in page order."""
    matches = map(_ROW.fullmatch, REQUIREMENTS.read_text(encoding="utf-8").splitlines())
    return {match[1]: match[2] for match in matches if match}


def rows_named_by(item: pytest.Item) -> tuple[str, ...]:
    return tuple(str(row) for mark in item.iter_markers("req") for row in mark.args)


def unknown_rows(marks: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """One line for every mark that names an unknown row."""
    known = requirement_rows()
    return [
        f"{nodeid}: there is no row {row} in docs/requirements.md; correct the mark"
        for nodeid, rows in marks
        for row in rows
        if row not in known
    ]


def sources_digest() -> str:
    """The identity of a run's subject: every source, every test, every row."""
    digest = hashlib.sha256()
    for path in [*_files("src"), *_files("tests"), REQUIREMENTS]:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _files(folder: str) -> Iterator[Path]:
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
            yield path


def record(outcomes: Outcomes, digest: str, cells: Cells | None = None) -> None:
    """Add the outcomes of one run to those of other runs of the same sources.

    `digest` is of the sources when the run began; if they changed during it, it proves nothing.
    """
    if sources_digest() != digest:
        return
    document = {
        "sources": digest,
        "tests": {**recorded(digest), **outcomes},
        "runners": {**recorded_cells(digest), **(cells or {})},
    }
    RECORD.parent.mkdir(exist_ok=True)
    scratch = RECORD.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(document, indent=1))
    scratch.rename(RECORD)


def recorded(digest: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """The outcomes recorded for these sources; empty if they were for others."""
    found = _document(digest).get("tests", {})
    return {nodeid: (tuple(rows), result) for nodeid, (rows, result) in found.items()}


def recorded_cells(digest: str) -> dict[str, list[tuple[str, str, str]]]:
    """The cells recorded for these sources."""
    found = _document(digest).get("runners", {})
    return {nodeid: [tuple(cell) for cell in cells] for nodeid, cells in found.items()}


def _document(digest: str) -> dict[str, Any]:
    if not RECORD.exists():
        return {}
    document: dict[str, Any] = json.loads(RECORD.read_text())
    return document if document["sources"] == digest else {}


def table_of_runners(cells: Cells) -> list[str]:
    """One line for each check and limit, one column for each runner that was tested."""
    found = {(row, runner): text for each in cells.values() for runner, row, text in each}
    runners = sorted({runner for _, runner in found})
    checks = [row for (row, _), text in found.items() if text in ("passed", "failed", "skipped")]
    rows = dict.fromkeys([*checks, *(row for row, _ in found)])  # limits last
    lines = [f"| check or limit | {' | '.join(runners)} |", "|---" * (len(runners) + 1) + "|"]
    for row in rows:
        texts = [found.get((row, runner), "not run") for runner in runners]
        lines.append(f"| {row} | {' | '.join(texts)} |")
    return lines if found else []


def proven_rows(outcomes: Outcomes) -> set[str]:
    named = [(row, result) for rows, result in outcomes.values() for row in rows]
    failed = {row for row, result in named if result == "failed"}
    return {row for row, result in named if result == "passed"} - failed


class _Collector:
    def __init__(self) -> None:
        self.marks: dict[str, tuple[str, ...]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if rows := rows_named_by(item):
                self.marks[item.nodeid] = rows


def main() -> int:
    os.chdir(ROOT)
    collector, noise = _Collector(), io.StringIO()
    with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
        status = pytest.main(["--collect-only", "-qqq"], plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.stderr.write(noise.getvalue())
        return 1

    rows = requirement_rows()
    ran = {
        nodeid: outcome
        for nodeid, outcome in recorded(sources_digest()).items()
        if nodeid in collector.marks
    }
    marked = {row for named in collector.marks.values() for row in named}
    counted = proven_rows(ran) if ran else marked
    guarded = _rows_with_a_mutation()
    lines = []
    for seed in sorted({row[:3] for row in rows}):
        of_seed = [row for row in rows if row.startswith(seed)]
        lines.append(
            f"{seed} {sum(row in counted for row in of_seed)}/{len(of_seed)}, "
            f"{sum(row in counted & guarded for row in of_seed)} with a mutation"
        )
    lines += ["", _basis(collector.marks, ran, len(marked)), ""]
    lines += [f"REQ-{row} {text}" for row, text in rows.items() if row not in counted]
    table = table_of_runners(recorded_cells(sources_digest()))
    lines += ["", *(table or ["not run: no runner was tested with these sources"])]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _rows_with_a_mutation() -> set[str]:
    """Rows that `make mutants` breaks, or for which tests/mutants says why it cannot."""
    mutants = runpy.run_path(str(Path(__file__).with_name("mutants.py")))
    broken = {row for mutation in mutants["mutations"]() for row in mutation.rows}
    return broken | set(mutants["rows_without"]())


def _basis(marks: Mapping[str, tuple[str, ...]], ran: Outcomes, marked: int) -> str:
    """The basis of the counts above."""
    if not ran:
        return f"not run: these sources have no recorded run, so marks are counted ({marked} rows)"
    results = [result for _, result in ran.values()]
    return (
        f"{len(marks)} tests name {marked} rows: {results.count('passed')} passed, "
        f"{results.count('failed')} failed, {results.count('skipped')} skipped, "
        f"{len(marks) - len(ran)} not run; the rows below are not proven"
    )


if __name__ == "__main__":
    raise SystemExit(main())
