"""Break the product on purpose, and see which promise nobody guards.

    scripts/mutants.py [--at-once N] [--acceptance] [NAME, ROW or TABLE ...]

`tests/mutants/*.toml` is a table of mutations. Each one replaces a few lines of the product, so
that the promise of one or more rows of docs/requirements.md is broken: a late deadline, a limit
times eight, a list that is ignored. The named tests then run on a copy of this checkout. A mutation
is *caught* if, for each of its rows, a test that bears the row's mark fails in its own body. A
mutation that no test notices *survives*.

Before the first mutation that needs a file of tests, those tests of the file that the chosen
mutations name run on the intact copy: all of them must pass there. A run under a mutation ends as
soon as each of its rows has a failed test.

    --acceptance   also run tests/acceptance under each mutation, without the named tests. A
                   mutation that breaks those too is coarse: it shows little about the tests
                   that it names.

A TABLE is the name of a file in tests/mutants, without the ending: 001, second-reader.

Exit code 1 if a mutation survives, is coarse, or cannot be applied.
"""

# ruff: noqa: T201 -- it reports on stdout

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests" / "mutants"
#: What a copy needs to run the tests.
COPIED = ("src", "tests", "scripts", "docs", "examples", "requirements", "bench")
COPIED_FILES = ("pyproject.toml", "hatch_build.py", "README.md", "ARCHITECTURE.md", "Makefile")
#: A broken jail may set the name of the host, or mount.
_APART = ("unshare", "--mount", "--uts", "--ipc") if os.geteuid() == 0 else ()
#: The tests of one mutation end by then, or the mutation counts as not measured.
SECONDS = 600


@dataclass(frozen=True, slots=True)
class Mutation:
    name: str
    rows: tuple[str, ...]
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    table: str = ""  #: the file in tests/mutants, without its ending
    in_suite: bool = False  #: `make test` runs it too

    def breaks(self, source: str) -> str:
        """The file with the mutation. Raises ValueError unless `old` occurs exactly once."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} holds the old text {count} times, not once")
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Verdict:
    mutation: Mutation
    word: str  #: caught, survives, coarse or broken
    detail: str = ""
    seconds: float = 0


def mutations(folder: Path = TABLES) -> tuple[Mutation, ...]:
    """The whole table, in file and page order."""
    return tuple(
        Mutation(
            **{**entry, "rows": tuple(entry["rows"]), "tests": tuple(entry["tests"])}, table=name
        )
        for name, table in _tables(folder)
        for entry in table.get("mutation", ())
    )


def rows_without(folder: Path = TABLES) -> dict[str, str]:
    """Row -> why no mutation is possible."""
    return {
        row: why for _, table in _tables(folder) for row, why in table.get("without", {}).items()
    }


def rows_unproven(folder: Path = TABLES) -> dict[str, str]:
    """Row -> why no test names it yet."""
    return {
        row: why for _, table in _tables(folder) for row, why in table.get("unproven", {}).items()
    }


def _tables(folder: Path) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    for file in sorted(folder.glob("*.toml")):
        yield file.stem, tomllib.loads(file.read_text(encoding="utf-8"))


#: nodeid -> (rows that the test names, phase, outcome)
Outcomes = Mapping[str, tuple[tuple[str, ...], str, str]]


class Copy:
    """A copy of this checkout whose Python imports the copy's sources."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        for name in COPIED:
            if (ROOT / name).exists():
                shutil.copytree(
                    ROOT / name,
                    self.root / name,
                    symlinks=True,
                    ignore=shutil.ignore_patterns("__pycache__"),
                )
        for name in COPIED_FILES:
            shutil.copy2(ROOT / name, self.root / name)
        subprocess.run(["git", "init", "-q", self.root], check=True)  # noqa: S607
        self._make_venv()

    def _make_venv(self) -> None:
        venv = self.root / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        libraries = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        installed = Path(sys.prefix) / libraries
        # Python reads the .pth files of one folder only, so the editable install of the original
        # is not found.
        (venv / libraries / "copy.pth").write_text(f"{self.root / 'src'}\n{installed}\n")
        (venv / "npm").symlink_to(Path(sys.prefix) / "npm")  # scripts/npm-servers
        for script in ("actum", "pytest"):
            text = (Path(sys.prefix) / "bin" / script).read_text()
            target = venv / "bin" / script
            target.write_text(text.replace(f"{sys.prefix}/bin/python", f"{venv}/bin/python"))
            target.chmod(0o755)

    @contextmanager
    def broken_by(self, mutation: Mutation) -> Iterator[None]:
        intact = (self.root / mutation.file).read_text(encoding="utf-8")
        broken = mutation.breaks(intact)
        try:
            self._write(mutation.file, broken)
            yield
        finally:
            self._write(mutation.file, intact)

    def _write(self, name: str, source: str) -> None:
        """Write one file of the product, and compile what it is a part of."""
        file = self.root / name
        file.write_text(source, encoding="utf-8")
        # Python compares sizes and seconds only: it would take the bytecode of the other source.
        for bytecode in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            bytecode.unlink()
        if file.suffix in (".c", ".h"):
            command = [self.root / ".venv/bin/python", "-B", "hatch_build.py"]
            subprocess.run(command, cwd=self.root, check=True, stdout=subprocess.DEVNULL)

    def test(self, *words: str, until: Iterable[str] = ()) -> tuple[Outcomes, str]:
        """Run pytest, and return what the tests did and the text that it printed.

        The run ends once each row of `until` has a test that failed.
        """
        with tempfile.TemporaryDirectory(prefix="t.") as scratch:
            report = Path(scratch) / "report.json"
            environment = {
                **os.environ,
                "PYTHONDONTWRITEBYTECODE": "",  # each test starts several interpreters
                "PYTEST_DEBUG_TEMPROOT": scratch,
                "ACTUM_MUTANT_REPORT": str(report),
                "ACTUM_MUTANT_ROWS": " ".join(until),
            }
            try:
                done = subprocess.run(
                    [
                        *_APART,
                        self.root / ".venv/bin/pytest",
                        "-q",
                        "-p",
                        "no:cacheprovider",
                        *words,
                    ],
                    cwd=self.root,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return {}, f"the tests did not end within {SECONDS} seconds"
            printed = done.stdout + done.stderr
            if not report.exists():
                return {}, printed
            found = json.loads(report.read_text())
            outcomes = {name: (tuple(rows), when, how) for name, (rows, when, how) in found.items()}
            return outcomes, printed


def measured(mutation: Mutation, copy: Copy, *, acceptance: bool = False) -> Verdict:
    """Run the tests of one mutation."""
    try:
        with copy.broken_by(mutation):
            outcomes, printed = copy.test(*mutation.tests, until=mutation.rows)
            if acceptance:
                spared = [word for test in mutation.tests for word in ("--deselect", test)]
                others, _ = copy.test("tests/acceptance", "-n", "2", *spared)
                failed = sorted(name for name, (_, _, how) in others.items() if how == "failed")
                if failed:
                    return Verdict(mutation, "coarse", ", ".join(failed))
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        return Verdict(mutation, "broken", str(error))
    if not outcomes:
        return Verdict(mutation, "broken", printed[-1500:])
    failed_rows = {
        row
        for rows, when, how in outcomes.values()
        if (when, how) == ("call", "failed")
        for row in rows
    }
    if left := [row for row in mutation.rows if row not in failed_rows]:
        endings = ", ".join(f"{name} {when} {how}" for name, (_, when, how) in outcomes.items())
        return Verdict(mutation, "survives", f"{', '.join(left)}; {endings}")
    return Verdict(mutation, "caught")


def run(
    chosen: Sequence[Mutation],
    *,
    at_once: int = 2,
    acceptance: bool = False,
    control: bool = True,
) -> Iterator[Verdict]:
    """Measure each mutation, in table order.

    Without `control` the tests do not run on the intact product: something else has run them.
    """
    with tempfile.TemporaryDirectory(prefix="m.") as folder:
        Path(folder).chmod(0o755)
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(min(at_once, len(chosen))):
            copies.put(Copy(Path(folder) / str(number)))
        intact = Control(chosen)

        def one(mutation: Mutation) -> Verdict:
            copy, begun = copies.get(), time.monotonic()
            try:
                if control and (failed := intact.failures(mutation, copy)):
                    return Verdict(mutation, "broken", f"without the mutation: {failed}")
                verdict = measured(mutation, copy, acceptance=acceptance)
                return replace(verdict, seconds=time.monotonic() - begun)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(one, chosen)


class Control:
    """The tests on the intact product: those that fail there show nothing."""

    def __init__(self, chosen: Iterable[Mutation]) -> None:
        self._tests: dict[str, set[str]] = defaultdict(set)
        for test in (test for mutation in chosen for test in mutation.tests):
            self._tests[_file(test)].add(test)
        self._ran: dict[str, Future[tuple[list[str], str]]] = {}
        self._lock = threading.Lock()

    def failures(self, mutation: Mutation, copy: Copy) -> str:
        """What fails of a mutation's tests, as pytest reports it.

        The first mutation that needs a file runs the tests of all the others there too.
        """
        said = []
        for file in _files(mutation):
            failed, printed = self._of(file, copy)
            own = [name for name in failed if _is_of(name, mutation.tests)]
            if own or (printed and not failed):
                said.append(f"{', '.join(own)}\n{printed[-3000:]}")
        return "\n".join(said)

    def _of(self, file: str, copy: Copy) -> tuple[list[str], str]:
        """(tests that did not pass, what pytest printed unless all passed)."""
        with self._lock:
            ran = self._ran.get(file)
            if mine := ran is None:
                ran = self._ran[file] = Future()
        if mine:
            outcomes, printed = copy.test(*sorted(self._tests[file]))
            failed = sorted(name for name, (_, _, how) in outcomes.items() if how != "passed")
            ran.set_result((failed, "" if outcomes and not failed else printed))
        return ran.result()


def _file(test: str) -> str:
    return test.partition("::")[0]


def _is_of(name: str, tests: Iterable[str]) -> bool:
    return any(name == test or name.startswith((f"{test}[", f"{test}::")) for test in tests)


def _files(mutation: Mutation) -> list[str]:
    return sorted({_file(test) for test in mutation.tests})


def chosen_from(table: Iterable[Mutation], words: Sequence[str]) -> list[Mutation]:
    return [each for each in table if not words or {each.name, each.table, *each.rows} & set(words)]


def counts(verdicts: Iterable[Verdict]) -> Mapping[str, int]:
    found = dict.fromkeys(("caught", "survives", "coarse", "broken"), 0)
    for verdict in verdicts:
        found[verdict.word] += 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--acceptance", action="store_true")
    parser.add_argument("words", nargs="*", metavar="NAME, ROW or TABLE")
    asked = parser.parse_args()
    table = mutations()
    chosen = chosen_from(table, asked.words)
    if not chosen:
        parser.error("no mutation has such a name or row; see tests/mutants")
    verdicts = []
    for verdict in run(chosen, at_once=asked.at_once, acceptance=asked.acceptance):
        verdicts.append(verdict)
        rows = " ".join(verdict.mutation.rows)
        name = f"{verdict.mutation.name}  [{rows}]"
        print(f"{verdict.word:9}{verdict.seconds:6.1f} s  {name}", flush=True)
        if verdict.detail:
            print(f"         {verdict.detail}", flush=True)
    found = counts(verdicts)
    rows = {row for mutation in table for row in mutation.rows}
    print(
        f"\n{len(chosen)} mutations of {len(rows)} rows: {found['caught']} caught, "
        f"{found['survives']} survive, {found['coarse']} coarse, {found['broken']} not measured"
    )
    return 0 if found["caught"] == len(verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
