"""One work item in this process, killed at a chosen moment. Started by test_work_moments.py.

    python work_driver.py PROJECT KILL_AT PHASE BREAK

PHASE is `all` or `commit` (moments are counted from there on); KILL_AT 0 only counts, and says how
many there were. BREAK names a part of the protocol to leave out, or `nothing`; `shutdown` takes the
place of a kill: the file system loses what it did not write, as in a power cut.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import injector  # noqa: E402

from actum import Runtime  # noqa: E402
from actum.work import item_pipeline, work_records  # noqa: E402
from actum.workspace import commit, namespace, space  # noqa: E402

#: EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN, without flushing the journal.
_SHUTDOWN, _NO_FLUSH = 0x8004587D, 2

ITEM = {
    "id": "crash",
    "agent_id": "agent-1",
    "description": "many kinds of change",
    "constraints": {"max_files": 50, "max_delta_size": 200},
    "test_command": "test -e made/new",
}


class Blackout(injector.Moments):
    """At the moment, the file system of the project is gone; then so are we."""

    def __init__(self, kill_at: int, project: str) -> None:
        super().__init__(kill_at, "outside", -1, "")
        self.folder = os.open(project, os.O_RDONLY)

    def __call__(self, frame: object, event: str, argument: object) -> None:
        if self.seen + 1 == self.kill_at and event == "c_call" and injector._touches(argument):
            libc = ctypes.CDLL(None)
            libc.ioctl(self.folder, ctypes.c_ulong(_SHUTDOWN), struct.pack("I", _NO_FLUSH))
            os.kill(os.getpid(), signal.SIGKILL)
        super().__call__(frame, event, argument)


def break_protocol(what: str) -> None:
    if what == "intent":
        commit.write_intent = lambda *_: None

        def at_once(self, room, staged, record, finish) -> None:
            base = os.open(self.base, os.O_RDONLY)
            commit.apply(staged.forward, base, room / "new")
            finish(record)

        space.Space.change = at_once
    if what == "sync":
        commit.kernel.syncfs = lambda _descriptor: None
        commit.sync_folder = lambda _folder: None
        whole = work_records.write_whole
        for room in (space, work_records):
            room.write_whole = lambda path, content, *, synced: whole(path, content, synced=False)


def main() -> None:
    project, kill_at, phase, broken = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    namespace.enter()
    cut = broken.startswith("shutdown")
    break_protocol(broken.removeprefix("shutdown-"))
    counted: list[injector.Moments] = []

    def arm() -> None:
        moments = (
            Blackout(kill_at, project) if cut else injector.Moments(kill_at, "outside", -1, "")
        )
        counted.append(moments)
        sys.setprofile(moments)

    with Runtime.open(project, pool=False) as runtime:
        order = {
            "do": "run",
            "item": ITEM,
            "run_id": "run-1",
            "caps": None,
            "engine": "auto",
            "level": None,
        }
        if phase == "commit":
            original = item_pipeline._committed

            def committed(*arguments):
                arm()
                return original(*arguments)

            item_pipeline._committed = committed
        else:
            arm()
        answer = runtime.work_items.here(order, lambda _word: None)
        sys.setprofile(None)
    print(json.dumps({"moments": counted[0].seen, "result": answer["result"]}))


main()
