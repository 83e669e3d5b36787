"""A project with real sandboxes, for tests that attack it; and the same acts outside of one.

`inside` and `outside` take the same script, so that every denial has its positive control.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actum import Result, Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.testing.conformance import processes_with
from common.settings import add_settings

#: Whether sandboxes are prepared before they are asked for. `make test` runs both ways.
POOL = os.environ.get("ACTUM_TEST_POOL", "on") != "off"
PROBE_SOURCE = Path(__file__).with_name("probe.c")
_SIGNAL = re.compile(r"[a-z][a-z0-9-]*")


def compile_probe(folder: Path) -> Path:
    program = folder / "probe"
    subprocess.run(["gcc", "-O1", "-o", program, PROBE_SOURCE], check=True)
    program.chmod(0o755)
    return program


class Jail:
    """One open project. Its working directory is `work`; `elsewhere` is no part of the project."""

    def __init__(
        self,
        folder: Path,
        probe: Path,
        *,
        pool: bool = POOL,
        transactions: bool = True,
        engine: str = "",
        containers: Path | None = None,
    ) -> None:
        """`transactions`: what tools change is committed when they have ended; else they write to
        the project itself (`changes = "direct"`). `engine` keeps it apart until then. `containers`
        is the socket of a container engine; without it tools run in this host's sandbox."""
        self.root = folder / "project"
        kind = RunnerKind.LOCAL if containers is None else RunnerKind.DOCKER
        create(self.root, kind, by="user:test", date="2026-11-15")
        if containers is not None:
            add_settings(self.root, f'\n[docker]\nhost = "unix://{containers}"\n')
        if not transactions:
            add_settings(self.root, '\n[workspace]\nchanges = "direct"\n')
        elif engine:
            add_settings(self.root, f'\n[workspace]\nengine = "{engine}"\n')
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        self.runtime = Runtime.open(self.root, pool=pool)
        self._probe = probe
        self.fresh_work()

    def fresh_work(self) -> Path:
        self.work = Path(tempfile.mkdtemp(prefix="work-", dir=self.root))
        self.told = Path(tempfile.mkdtemp(prefix="told-", dir=self.root))
        for folder in (self.work, self.told):
            folder.chmod(0o755)
        return self.work

    def relay(self, stream: str, chunk: bytes) -> None:
        """`on_output` for tools that signal while they run: each word on stderr becomes a file in
        `told`, which the host and other tools wait for. A file that a tool writes itself is not
        seen before it has ended; files that the host makes in `told` are, by tools in `work`."""
        if stream == "stderr":
            for word in chunk.decode().split():
                if _SIGNAL.fullmatch(word):
                    (self.told / word).touch()

    def sh(self, script: str, *arguments: str, **asked: Any) -> Result:
        """Run a shell script in the sandbox; `limits` are fields of the contract."""
        return self._exec("shell", script, arguments, asked)

    def python(self, program: str, *arguments: str, **asked: Any) -> Result:
        return self._exec("python", program, arguments, asked)

    def _exec(
        self, tool: str, text: str, arguments: tuple[str, ...], asked: dict[str, Any]
    ) -> Result:
        fields = asked.pop("limits", {})
        asked.setdefault("cwd", self.work)
        return self.runtime.exec(tool, *arguments, stdin=text.encode(), set=fields, **asked)

    def said(self, result: Result) -> str:
        """What a tool that ran printed; a refusal is a failure of the test."""
        assert result.result is not None, result.violations
        return result.result.stdout.strip()

    def outside(self, script: str, *arguments: str, cwd: Path | None = None) -> str:
        """The same shell script without a sandbox."""
        return self._bare(["/bin/sh", "-s", "--", *arguments], script, cwd)

    def outside_python(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        return self._bare(["/usr/bin/python3", "-", *arguments], program, cwd)

    def _bare(self, argv: list[str], text: str, cwd: Path | None) -> str:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, cwd=cwd or self.work, timeout=30
        )
        return done.stdout.strip()

    def attempt(self, act: str, *arguments: str, **asked: Any) -> Result:
        """One act of tests/hostile/probe.c inside."""
        program = self.work / "probe"
        if not program.exists():
            os.link(self._probe, program) if _same_disk(self._probe, self.work) else _copy(
                self._probe, program
            )
        return self.sh('./probe "$@"; echo "code $?"', act, *arguments, **asked)

    def freely(self, act: str, *arguments: str, namespaces: bool = True) -> str:
        """The same act outside, in namespaces where the caller may do what they like."""
        argv = [str(self._probe), *(["--free"] if namespaces else []), act, *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=self.work, timeout=30)
        return done.stdout.strip() or done.stderr.strip()

    def close(self) -> None:
        self.runtime.close()


def _same_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


def _copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())
    target.chmod(0o755)


def marker() -> str:
    """A number of seconds that no other process sleeps, to find our own in /proc."""
    return f"4{uuid.uuid4().int % 10**9:09d}"


def wake(mark: str) -> None:
    """End the `sleep` of `mark` seconds of a tool as soon as it is there: its shell goes on."""
    sleeps(mark)
    for pid in _sleepers(mark):
        os.kill(pid, signal.SIGTERM)


def sleeps(mark: str) -> None:
    """Wait until a tool sleeps for `mark` seconds."""
    until(lambda: _sleepers(mark), f"sleep {mark}")


def _sleepers(mark: str) -> list[int]:
    return [pid for pid in processes_with(mark) if name_of(str(pid)) == "sleep\n"]


#: A zombie has no command line, so it does not count as alive.
alive = processes_with


def until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait for what is bound to come; a test that waits in vain fails by itself."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.005)


def appears(path: Path) -> None:
    """Wait until a file is there."""
    until(path.exists, str(path))


def own_cgroups() -> set[str]:
    """Groups of sandboxes that this process made and that exist now."""
    mark = f"-{os.getpid()}-"
    # os.walk passes over what vanishes meanwhile: other processes have groups there too.
    return {
        f"{folder}/{name}"
        for folder, names, _files in os.walk("/sys/fs/cgroup")
        for name in names
        if mark in name and "actum" in folder
    }


def tools_in(group: Path) -> list[int]:
    """Processes in a control group that run something else than our own programs: in a prepared
    sandbox one waits to become the tool."""
    try:
        processes = (group / "cgroup.procs").read_text().split()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise
        return []  # an init has removed it meanwhile, which only an empty one lets
    # By name: an ordinary user may not look at a process that is not dumpable.
    return [int(pid) for pid in processes if not name_of(pid).startswith(("jail", "python", "\0"))]


def name_of(pid: str) -> str:
    """As the kernel has it, with a line feed."""
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "\0"  # it has ended meanwhile


def mounts_below(folder: Path) -> list[str]:
    """Mounts of this process's namespace that show or cover something of a folder. The others are
    none of ours to judge: neighbours mount too."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        return [line for line in table if str(folder) in line]


def own_children() -> set[int]:
    """Every process below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    waiting = {os.getpid()}
    while waiting:
        waiting = {pid for pid, parent in parents.items() if parent in waiting}
        found |= waiting
    return found


if sys.platform != "linux":
    raise RuntimeError("sandboxes are made of Linux")
