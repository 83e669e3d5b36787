"""Break the product on purpose, and see which promise nobody guards.

    scripts/mutants.py [--at-once N] [--acceptance] [NAME or ROW ...]

`tests/mutants/*.toml` is a table of mutations. Each one replaces a few lines of the product, so
that the promise of one or more rows of docs/requirements.md is broken: a late deadline, a limit
times eight, a list that is ignored. The named tests then run on a copy of this checkout. A mutation
is *caught* if, for each of its rows, a test that bears the row's mark fails in its own body. A
mutation that no test notices *survives*.

First the same tests run on a copy without a mutation: all of them must pass there.

    --acceptance   also run tests/acceptance under each mutation, without the named tests. A
                   mutation that breaks those too is coarse: it shows little about the tests
                   that it names.

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
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
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


def mutations(folder: Path = TABLES) -> tuple[Mutation, ...]:
    """The whole table, in file and page order."""
    return tuple(
        Mutation(**{**entry, "rows": tuple(entry["rows"]), "tests": tuple(entry["tests"])})
        for table in _tables(folder)
        for entry in table.get("mutation", ())
    )


def rows_without(folder: Path = TABLES) -> dict[str, str]:
    """Row -> why no mutation is possible."""
    return {row: why for table in _tables(folder) for row, why in table.get("without", {}).items()}


def _tables(folder: Path) -> Iterator[dict[str, dict[str, str]]]:
    for file in sorted(folder.glob("*.toml")):
        yield tomllib.loads(file.read_text(encoding="utf-8"))


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
        file = self.root / mutation.file
        intact = file.read_text(encoding="utf-8")
        file.write_text(mutation.breaks(intact), encoding="utf-8")
        try:
            self._compile(mutation)
            yield
        finally:
            file.write_text(intact, encoding="utf-8")
            self._compile(mutation)

    def _compile(self, mutation: Mutation) -> None:
        if mutation.file.endswith((".c", ".h")):
            command = [self.root / ".venv/bin/python", "-B", "hatch_build.py"]
            subprocess.run(command, cwd=self.root, check=True, stdout=subprocess.DEVNULL)

    def test(self, *words: str) -> tuple[dict[str, tuple[tuple[str, ...], str, str]], str]:
        """Run pytest. Returns nodeid -> (rows, phase, outcome), and the text that it printed."""
        with tempfile.TemporaryDirectory(prefix="t.") as scratch:
            report = Path(scratch) / "report.json"
            environment = {
                **os.environ,
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTEST_DEBUG_TEMPROOT": scratch,
                "ACTUM_MUTANT_REPORT": str(report),
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
            outcomes, printed = copy.test(*mutation.tests)
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
    chosen: Sequence[Mutation], *, at_once: int = 2, acceptance: bool = False
) -> Iterator[Verdict]:
    """Measure each mutation, in table order. The control run comes first."""
    with tempfile.TemporaryDirectory(prefix="m.") as folder:
        Path(folder).chmod(0o755)
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(min(at_once, len(chosen))):
            copies.put(Copy(Path(folder) / str(number)))
        yield from _control(chosen, copies)

        def one(mutation: Mutation) -> Verdict:
            copy = copies.get()
            try:
                return measured(mutation, copy, acceptance=acceptance)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(one, chosen)


def _control(chosen: Sequence[Mutation], copies: queue.SimpleQueue[Copy]) -> Iterator[Verdict]:
    """The tests on an intact copy: those that fail there show nothing."""
    copy = copies.get()
    tests = sorted({test for mutation in chosen for test in mutation.tests})
    outcomes, printed = copy.test("-n", "2", "--dist", "loadfile", *tests)
    copies.put(copy)
    intact = Mutation("the intact product", (), "", "", "", tuple(tests))
    failed = sorted(name for name, (_, _, how) in outcomes.items() if how != "passed")
    if failed or not outcomes:
        yield Verdict(intact, "broken", ", ".join(failed) or printed[-3000:])


def chosen_from(table: Iterable[Mutation], words: Sequence[str]) -> list[Mutation]:
    return [
        each for each in table if not words or each.name in words or set(words) & set(each.rows)
    ]


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
    parser.add_argument("words", nargs="*", metavar="NAME or ROW")
    asked = parser.parse_args()
    table = mutations()
    chosen = chosen_from(table, asked.words)
    if not chosen:
        parser.error("no mutation has such a name or row; see tests/mutants")
    verdicts = []
    for verdict in run(chosen, at_once=asked.at_once, acceptance=asked.acceptance):
        verdicts.append(verdict)
        rows = " ".join(verdict.mutation.rows)
        print(f"{verdict.word:9}{verdict.mutation.name}  [{rows}]", flush=True)
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
