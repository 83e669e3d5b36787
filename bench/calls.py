"""Python calls of one execution, and how often they go from one room to another.

    calls.py [COMMIT]

Counts, in the thread that makes the request, every call of a Python function, and every call from a
module of one room to a module of another. Two ways in: `rt.exec` with an argument that no request
had before, in a process that has made some; and `actum exec shell` with its imports, as a command
starts. Both run in processes of their own. With COMMIT, that version is counted too.

Counts do not depend on the load of the machine. They say how long the path is, not how long it
takes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import checkout

REQUESTS = 9
_WARM_UP = 16  #: from its ninth instance on a value has a compiled `__init__`
_PAUSE_S = 0.1  #: meanwhile the runtime prepares its next sandbox
OURS = checkout.REPOSITORY / "src"


class Calls:
    """Counts while it is the profile function of its thread."""

    def __init__(self, package: str) -> None:
        self._package = package + os.sep
        self._rooms: dict[str, str | None] = {}  #: file of code -> its room
        self.calls = self.own_calls = self.crossings = 0
        self.modules: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        self.calls += 1
        file = frame.f_code.co_filename
        room, caller = self._room(file), frame.f_back
        if room is None or caller is None:
            return
        self.own_calls += 1
        self.modules.add(file)
        called_from = self._room(caller.f_code.co_filename)
        self.crossings += called_from is not None and called_from != room

    def _room(self, file: str) -> str | None:
        """The first folder or module below `actum/`; `None` for code of others."""
        if file not in self._rooms:
            is_ours = file.startswith(self._package)
            below = file.removeprefix(self._package).split(os.sep)[0]
            self._rooms[file] = below if is_ours else None
        return self._rooms[file]

    def counts(self) -> dict[str, int]:
        return {
            "calls": self.calls,
            "own_calls": self.own_calls,
            "crossings": self.crossings,
            "modules": len(self.modules),
        }


def measure(against: str | None = None) -> dict[str, Any]:
    """Way in -> version -> counts."""
    against = against or os.environ.get("ACTUM_BENCH_AGAINST") or None
    with ExitStack() as stack:
        sources = {"actum": OURS}
        if against is not None:
            sources["against"] = stack.enter_context(checkout.checked_out(against))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="actum-bench-")))
        found: dict[str, Any] = {"library": {}, "command": {}}
        for name, source in sources.items():
            root = folder / name
            environment = checkout.environment(source)
            init = ("-m", "actum.doors.cli.main", "init", "--runner", "local", str(root))
            root.mkdir()
            _run(environment, folder, *init)
            _run(environment, folder, "-m", "compileall", "-q", str(source))
            for way in found:
                report = root / f"{way}.json"
                _run(environment, root, __file__, "--count", way, str(report))
                found[way][name] = json.loads(report.read_text())
    return {"against": None if against is None else checkout.short(against), **found}


def _run(environment: dict[str, str], folder: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words],
        input="echo counted",
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:4])}: {done.stderr[-300:]}")


def _package() -> str:
    """The folder of Actum, without an import of it: its modules are part of what is counted."""
    source = next(path for path in sys.path if Path(path, "actum", "doors").is_dir())
    return str(Path(source, "actum").resolve())


def _library(report: Path) -> None:
    import actum

    counted = []
    with actum.Runtime.open(Path.cwd()) as runtime:
        for number in range(_WARM_UP + REQUESTS):
            calls = Calls(_package())
            sys.setprofile(calls)
            result = runtime.exec("shell", f"argument{number}", stdin="echo $1")
            sys.setprofile(None)
            assert result.check().result.stdout == f"argument{number}\n", result
            counted.append(calls.counts())
            time.sleep(_PAUSE_S)
    rows = counted[_WARM_UP:]
    medians = {name: round(statistics.median(row[name] for row in rows)) for name in rows[0]}
    report.write_text(json.dumps(medians))


def _command(report: Path) -> None:
    calls = Calls(_package())
    leave = os._exit

    def counted(code: int) -> None:
        sys.setprofile(None)
        report.write_text(json.dumps(calls.counts()))
        leave(code)

    os._exit = counted  # type: ignore[assignment]
    sys.argv = ["actum", "exec", "shell", "--stdin", "-"]
    sys.setprofile(calls)
    from actum.doors.cli.main import main as actum_main

    actum_main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        {"library": _library, "command": _command}[sys.argv[2]](Path(sys.argv[3]))
    else:
        print(json.dumps(measure(*sys.argv[1:2]), indent=1))
