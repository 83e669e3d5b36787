"""For every test: requirement marks are checked and recorded, and skips are counted aloud."""

from __future__ import annotations

import json
import os
import runpy
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

import engines

# Tests interrupt programs that they start. A shell starts background jobs with SIGINT ignored, and
# programs inherit that; with a handler here, they begin with the default.
signal.signal(signal.SIGINT, signal.default_int_handler)
# `nohup` ignores SIGHUP in the same way.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# Timing decides no test, theirs neither.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# By path: `scripts` is no package, and a folder of tests may well be called "conformance".
_SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "conformance.py"
conformance = SimpleNamespace(**runpy.run_path(str(_SCRIPT)))

_WORST_LAST = ("passed", "skipped", "failed")


class Record:
    """Outcomes of this run, seen from the process that reports (not from xdist's workers)."""

    def __init__(self) -> None:
        self.outcomes: dict[str, tuple[tuple[str, ...], str]] = {}
        self.skips: Counter[str] = Counter()
        self.gaps: Counter[str] = Counter()
        self.figures: list[str] = []  #: what tests have measured and nobody asserts
        self.cells: dict[str, list[tuple[str, str, str]]] = {}  #: of the table of runners
        self.sources = conformance.sources_digest()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            # An expected failure is no skip: the test ran, and shows what is not held yet.
            known = self.gaps if hasattr(report, "wasxfail") else self.skips
            known[_reason(report)] += 1
        if report.when == "call":
            self.figures += [str(each) for name, each in report.user_properties if name == "figure"]
        self._fill_cells(report)
        rows = tuple(str(value) for name, value in report.user_properties if name == "req")
        if rows:
            _, before = self.outcomes.get(report.nodeid, (rows, "passed"))
            worst = max(before, report.outcome, key=_WORST_LAST.index)
            self.outcomes[report.nodeid] = (rows, worst)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.getoption("lf", False):
            return  # a second look at some tests is not a record of all
        # The second run, as an ordinary user, cannot write here: the first one is on record.
        if self.outcomes and os.access(conformance.ROOT, os.W_OK):
            conformance.record(self.outcomes, self.sources, self.cells)

    def _fill_cells(self, report: pytest.TestReport) -> None:
        before = {(runner, row): text for runner, row, text in self.cells.get(report.nodeid, [])}
        for name, value in report.user_properties:
            if name == "runner":
                runner, row, text = json.loads(str(value))
                if before.get((runner, row)) not in ("failed", "skipped"):
                    before[runner, row] = text if report.passed else report.outcome
        if before:
            self.cells[report.nodeid] = [(*key, text) for key, text in before.items()]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        proven = len(conformance.proven_rows(self.outcomes))
        terminalreporter.write_line(f"requirement rows proven in this run: {proven}")
        for figure in self.figures:
            terminalreporter.write_line(f"measured: {figure}")
        for what, counted in (("skipped tests", self.skips), ("known gaps", self.gaps)):
            reasons = "; ".join(f"{count} × {why}" for why, count in counted.most_common())
            terminalreporter.write_line(f"{what}: {counted.total()}. {reasons}".rstrip())


class MutationReport:
    """For scripts/mutants.py: the worst phase of each test, into the file that it names.

    Ends the run once each of `rows` has a test that failed: more tests would show no more.
    """

    def __init__(self, file: Path, rows: set[str]) -> None:
        self.file = file
        self.rows = rows
        self.worst: dict[str, tuple[list[str], str, str]] = {}

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = [str(value) for name, value in report.user_properties if name == "req"]
        _, _, before = self.worst.get(report.nodeid, (rows, "", "passed"))
        if report.nodeid not in self.worst or _is_worse(report.outcome, before):
            self.worst[report.nodeid] = (rows, report.when, report.outcome)
        if self.rows and (report.when, report.outcome) == ("call", "failed"):
            self.rows -= set(rows)
            if not self.rows:
                self.session.shouldstop = "each row of the mutation has a test that failed"

    def pytest_sessionfinish(self) -> None:
        self.file.write_text(json.dumps(self.worst))


def _is_worse(outcome: str, than: str) -> bool:
    return _WORST_LAST.index(outcome) > _WORST_LAST.index(than)


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(getattr(report, "wasxfail", report.longrepr))


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        engines.stop_all()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if file := os.environ.get("ACTUM_MUTANT_REPORT"):
        rows = set(os.environ.get("ACTUM_MUTANT_ROWS", "").split())
        config.pluginmanager.register(MutationReport(Path(file), rows), "actum-mutation-report")
    else:
        config.pluginmanager.register(Record(), "actum-record")


#: Files of these folders take minutes each: begun last, they would leave all other workers idle.
#: The Makefile keeps xdist from sorting files by their number of tests, which puts these last.
_FIRST = ("vm", "strikes", "crash", "soak", "fuzz", "tamper", "mutants", "documents")
#: Most of these files take less than a second.
_LAST = ("unit", "typing")


def _turn(item: pytest.Item) -> int:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder in _FIRST:
        return _FIRST.index(folder)
    return len(_FIRST) + (folder in _LAST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    marks = [(item.nodeid, conformance.rows_named_by(item)) for item in items]
    if unknown := conformance.unknown_rows(marks):
        raise pytest.UsageError("\n".join(unknown))
    for item, (_, rows) in zip(items, marks, strict=True):
        item.user_properties += [("req", row) for row in rows]
