"""Crashes executions at chosen moments and says what was there afterwards. One JSON line each.

    python driver.py FOLDER CASES

FOLDER holds `template`, a project; CASES is `count`, or JSON, a list of
    {"victim": "actum"|"spawner"|"maker"|"init"|"tool", "kill_at": 17}               a moment
                       also "temporary": in a throwaway home; "snippet": with warm interpreters
    {"victim": "actum"|"spawner"|"init", "point": "seal", "when": "before"}          a named step
    {"victim": "actum", "syscall": "pwrite64", "nth": 3}                             a system call

Run as a process of its own: it is the reaper of everything it starts, however deep and however
orphaned, so a survivor cannot hide; and it has, as root, its own view of the mounts. Each case has
two lives: one that is struck, and the next command, which has to find a clean house and go on.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import injector  # noqa: E402
import points  # noqa: E402

from actum import Runtime, kernel  # noqa: E402
from actum.errors import ActumError  # noqa: E402
from actum.evidence.journal_entry import signed  # noqa: E402
from actum.sandbox import (  # noqa: E402
    cgroup_v1,
    cgroup_v2,
    spawner_client,
)
from actum.sandbox.cgroup import Layout  # noqa: E402
from actum.store.keys import Keyring  # noqa: E402
from common.journals import lying  # noqa: E402

_SUBREAPER = 36
_PRIVATE = 1 << 18  # MS_PRIVATE
#: Verification reads everything there is, so a project is not kept for ever.
_CASES_PER_PROJECT = 20
UNARMED = spawner_client._BOOT
#: Says something, leaves a file, changes the project, and leaves a process running. The changes of
#: one execution are the next number in three files, one of them in a folder that replaces another.
SCRIPT = b"""
echo said; echo kept > /artifacts/file
number=$(($(cat first 2>/dev/null || echo 0) + 1))
echo $number > first; mkdir -p deep; echo $number > deep/second
rm -rf was-*; mkdir was-$number; echo $number > was-$number/third; ln -s third was-$number/link
sleep 60 & echo done
"""
#: Is certainly still at it when someone is struck.
SLOW = b"echo said; sleep 25"
VICTIMS = ("actum", "temporary", "snippet", "spawner", "maker", "init", "tool")
CHANGING = (
    "write,pwrite64,writev,pwritev,fsync,fdatasync,ftruncate,rename,renameat,renameat2,link,linkat,"
    "unlink,unlinkat,mkdir,mkdirat,rmdir,sendmsg,sendto,vfork,fork,clone,clone3,fchmod,kill,"
    "pidfd_send_signal,memfd_create,socketpair,shutdown,chmod,fchmodat,chown,lchown,fchown,fchownat,"
    "symlink,symlinkat,fremovexattr"
)
#: Until a killed tree must be gone.
PATIENCE_S = 60.0


class House:
    """One project, and everything on this host that could be left of it."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        shutil.rmtree(self.project, ignore_errors=True)
        shutil.copytree(folder / "template", self.project, symlinks=True)
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        os.environ["TMPDIR"] = str(self.temporary)
        self.mounts = _mounts(folder)
        self._folder = folder

    def leftovers(self, struck: list[int]) -> list[str]:
        """Everything that should not be there once a later command has run."""
        left = [f"process {pid}" for pid in children()]
        left += [f"cgroup {group}" for group in _groups_of(struck)]
        left += [f"mount {line}" for line in sorted(_mounts(self._folder) - self.mounts)]
        left += [f"temporary {path}" for path in self.temporary.rglob("*")]
        home = self.project / ".actum"
        left += [f"session {path.name}" for path in (home / "session").glob("*")]
        left += [str(path.relative_to(home)) for path in home.rglob("*new*")]
        left += [f"transaction {each}" for each in self._unsettled()]
        return left

    def _unsettled(self) -> Iterator[str]:
        """Transactions that are neither committed nor gone, and what only an open one needs."""
        for folder in (self.project / ".actum" / "transactions").glob("*/"):
            try:
                state = json.loads((folder / "record.json").read_bytes())["state"]
            except FileNotFoundError:
                state = "not recorded"
            if state != "committed":
                yield f"{folder.name} is {state}"
            if (folder / "intent.json").exists():
                yield f"{folder.name} has an intent"
            for name in ("lower", "upper", "work"):
                yield from (str(layer) for layer in folder.glob(f"*/{name}"))

    def changes(self) -> list[str]:
        """The numbers that executions have left in the project: how often the changes were made."""
        found = [self.project / "first", self.project / "deep" / "second"]
        found += sorted(self.project.glob("was-*/third"))
        numbers = [path.read_text().strip() for path in found if path.exists()]
        numbers += [path.name.removeprefix("was-") for path in self.project.glob("was-*")]
        return numbers

    def states(self) -> dict[str, list[Any]]:
        """execution_id -> [state, outcome, reason codes], read without opening the house."""
        connection = sqlite3.connect(f"file:{self.project}/.actum/actum.db?mode=ro", uri=True)
        with contextlib.closing(connection):
            rows = connection.execute(
                "SELECT e.execution_id, e.state, e.outcome, r.envelope FROM executions e"
                " LEFT JOIN receipts r ON r.receipt_id = e.receipt_id"
            )
            found = {row[0]: [row[1], row[2], _reasons(row[3])] for row in rows}
            (filed,) = connection.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()
        home = self.project / ".actum"
        signer = Keyring.open(home).signer
        for frame in lying(home, signer):
            if frame.last > filed:
                found |= {row["execution_id"]: ["PENDING", None, []] for row in frame.started}
                found |= {
                    row["execution_id"]: ["FINAL", row["outcome"], _reasons(row["envelope"])]
                    for row in signed(frame, signer).ended
                }
        return found


def _reasons(envelope: str | None) -> list[str]:
    if envelope is None:
        return []
    statement = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    reasons: list[str] = statement["predicate"]["reason_codes"]
    return reasons


def _mounts(folder: Path) -> frozenset[str]:
    """Mounts that show or cover something of the test's own folder."""
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    return frozenset(" ".join(line.split()[2:6]) for line in table if str(folder) in line)


def _groups_of(pids: list[int]) -> list[str]:
    layout = Layout.of_host()
    if layout.version() == 1:
        parents = set(cgroup_v1.Hierarchies.of(layout).parents(os.geteuid()).values())
    else:
        parents = {cgroup_v2.place(layout)}
    marks = [f"-{pid}-" for pid in pids]
    return [
        f"{parent}/{name}"
        for parent in parents
        for name in os.listdir(parent)
        if any(mark in name for mark in marks)
    ]


def children() -> list[int]:
    """Who is left of what we started, after the dead are buried."""
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if pid == 0:
            break
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in listed]


def wait_for_quiet() -> None:
    """Until nobody is left, or our patience is at its end."""
    until = time.monotonic() + PATIENCE_S
    while children():
        if time.monotonic() > until:
            return
        time.sleep(0.002)


def _fork(work: Callable[[int], None]) -> tuple[int, int]:
    """(pid, what it says) of a process that does `work` and nothing else."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        code = 70
        try:
            work(write)
            code = 0
        except BaseException:  # noqa: BLE001 -- nothing of this process goes on
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    return pid, read


def _outlive(pid: int, read: int) -> tuple[int, int, bytes]:
    with open(read, "rb") as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    return pid, status, said


def in_child(work: Callable[[int], None]) -> tuple[int, int, bytes]:
    """(pid, wait status, what it said)"""
    return _outlive(*_fork(work))


def traced(work: Callable[[int], None], *options: str) -> tuple[int, int, bytes]:
    """`in_child`, under strace from the first line of `work` on."""

    def wait_for_tracer(told: int) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        work(told)

    pid, read = _fork(wait_for_tracer)
    os.waitpid(pid, os.WUNTRACED)
    tracer = subprocess.Popen(
        ["strace", "-qq", *options, "-p", str(pid)], stderr=subprocess.DEVNULL
    )
    while "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text():
        time.sleep(0.001)
    os.kill(pid, signal.SIGCONT)
    ended = _outlive(pid, read)
    tracer.wait()
    return ended


def arm_spawner(role: str, kill_at: int, tally: str = "") -> None:
    """The spawner loads the injector before anything else."""
    spawner_client._BOOT = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import injector; sys.path.pop(0);"
        f" injector.arm({kill_at}, {role!r}, tally={tally!r}); {spawner_client._BOOT}"
    )


def count(house: House, victim: str, told: int) -> None:
    """How many moments an unharmed life has. In a fresh process: what is known need not be read."""
    if victim in ("spawner", "maker", "init", "tool"):
        tally = house.project / "tally"
        tally.write_bytes(bytes(injector.TALLY_BYTES))
        role = "outside" if victim == "spawner" else victim
        arm_spawner(role, 0, str(tally))
        with open_house(house, {}) as runtime:
            ask(runtime, SCRIPT)
        seen = struct.unpack_from("IIII", tally.read_bytes())[injector.ROLES.index(role)]
    else:
        moments = injector.arm(0)
        with open_house(house, {victim: True}) as runtime:
            live(runtime, {victim: True})
        sys.setprofile(None)
        seen = moments.seen
    os.write(told, str(seen).encode())


def count_syscalls(house: House) -> dict[str, int]:
    """How often an unharmed life makes each system call that changes a file or tells another."""
    log = house.project.parent / "calls"
    case = {"victim": "actum", "syscall": ""}
    traced(lambda told: struck_life(house, case, told), "-o", str(log), "-e", f"trace={CHANGING}")
    calls = re.findall(r"^([a-z0-9_]+)\(", log.read_text(), re.MULTILINE)
    return dict(Counter(calls))


@contextlib.contextmanager
def open_house(house: House, case: dict[str, Any]) -> Iterator[Runtime]:
    if case.get("temporary"):
        with Runtime.temporary() as runtime:
            yield runtime
    else:
        os.chdir(house.project)
        with Runtime.open(house.project) as runtime:
            yield runtime


def struck_life(house: House, case: dict[str, Any], told: int) -> None:
    """Executions in one runtime, one of them struck, and whatever becomes of them."""
    victim, kill_at, moments = case["victim"], case.get("kill_at"), None
    if "syscall" in case:
        pass  # the tracer strikes
    elif "point" in case:
        points.BY_NAME[case["point"]].install(case["when"], lambda: points.kill(victim))
    elif victim == "actum":
        moments = injector.arm(kill_at, "outside", told)
    else:
        arm_spawner("outside" if victim == "spawner" else victim, kill_at)
    with open_house(house, case) as runtime:
        answers = live(runtime, case)
        if victim != "actum":
            spawner_client._BOOT = UNARMED
            # The second open can miss a process that was killed late; the third finds all well.
            answers += [ask(runtime, SCRIPT), ask(runtime, SCRIPT)]
    sys.setprofile(None)
    seen = 0 if moments is None else moments.seen
    os.write(told, json.dumps({"answers": answers, "moments": seen}).encode())


def live(runtime: Runtime, case: dict[str, Any]) -> list[str]:
    """What a struck process was about to do."""
    if case.get("snippet"):
        # The second one finds an interpreter that was started for it.
        return [runtime.python("print(6 * 7)").outcome.value for _ in range(2)]
    return [ask(runtime, SLOW if case.get("slow") else SCRIPT)]


def ask(runtime: Runtime, script: bytes) -> str:
    try:
        result = runtime.exec("shell", stdin=script)
        assert result.receipt_path  # asked for, so it becomes a file
    except ActumError as error:
        return error.code
    return result.outcome.value


def next_life(house: House, told: int) -> None:
    """The next command: opens, verifies everything, and runs something."""
    os.chdir(house.project)
    with Runtime.open(house.project) as runtime:
        findings = runtime.verifier.verify_all()
        wrong = [str(finding) for finding in findings if not finding.passed]
        still_open = len(runtime.services.executions.open_executions())
        changes = house.changes()
        outcome = ask(runtime, SCRIPT)
    answer = {
        "wrong": wrong,
        "open": still_open,
        "next": outcome,
        "findings": len(findings),
        "changes": changes,
    }
    os.write(told, json.dumps(answer).encode())


def try_case(house: House, case: dict[str, Any]) -> dict[str, Any]:
    before, changes_before = house.states(), house.changes()
    if "syscall" in case:
        strike = f"inject={case['syscall']}:signal=KILL:when={case['nth']}"
        pid, status, said = traced(
            lambda told: struck_life(house, case, told), "-o", "/dev/null", "-e", strike
        )
    else:
        pid, status, said = in_child(lambda told: struck_life(house, case, told))
    found = {key: value for key, value in house.states().items() if key not in before}
    # At once: what is still dying must not disturb the next command.
    next_pid, next_status, answer = in_child(lambda told: next_life(house, told))
    wait_for_quiet()
    after = house.states()
    return {
        "case": case,
        "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
        "exit_code": None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),
        "said": said.decode(),
        "found": [state for state, *_ in found.values()],
        "became": [after[execution_id] for execution_id in found],
        "next_status": next_status,
        "answer": json.loads(answer) if answer else None,
        "left": house.leftovers([pid, next_pid]),
        "changes": [changes_before, json.loads(answer)["changes"] if answer else None],
        "changes_next": house.changes(),
    }


def main(folder: str, cases: str) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    if os.geteuid() == 0:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("", "/", "", kernel.MS_REC | _PRIVATE)
    if cases == "count":
        house = House(Path(folder))
        totals = {
            victim: int(in_child(lambda told, victim=victim: count(house, victim, told))[2])
            for victim in VICTIMS
        }
        print(json.dumps({**totals, "syscalls": count_syscalls(house)}))
        return
    for number, case in enumerate(json.loads(cases)):
        if number % _CASES_PER_PROJECT == 0:
            house = House(Path(folder))
        print(json.dumps(try_case(house, case)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
