"""An init that has told the end removes the groups by itself, while the host may still look."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import threading
import time

import pytest

from actum.runners.supervise import Supervised, Supervisor
from actum.sandbox.handle import Sandbox

_ENDED = {
    "kind": "ended",
    "wait_status": 0,
    "violation": "",
    "denials": [],
    "denials_total": 0,
    "scratch_bytes": 0,
    "artifacts_bytes": 0,
    "full": [],
    "usage": ["oom_kill 0"],
    "leaving": True,
}


class Removed:
    """A group that was removed: its event fires, and nothing of it can be read."""

    oom_poll = select.POLLIN

    def __init__(self, *, hears: bool) -> None:
        self.oom_event = os.eventfd(1)
        self.hears = hears  #: as version 1 does; version 2 cannot read even the event

    def oom_heard(self) -> bool:
        os.eventfd_read(self.oom_event)
        if not self.hears:
            raise OSError(19, "No such device")
        return True

    def oom_kills(self) -> int:
        raise FileNotFoundError(2, "No such file or directory", "memory.oom_control")


@pytest.mark.parametrize("hears", [True, False])
def test_a_group_that_is_gone_is_no_proof_and_no_fault(hears: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    said, says = os.pipe2(os.O_NONBLOCK)
    silent, says_nothing = os.pipe2(os.O_NONBLOCK)
    os.write(says, b"all it had to say")
    group = Removed(hears=hears)
    process = subprocess.Popen(["sleep", "60"])  # for the init
    sandbox = Sandbox(
        control=ours,
        stdin=-1,
        stdout=said,
        stderr=silent,
        pidfd=os.pidfd_open(process.pid),
        start=-1,
    )

    def tell() -> None:
        poll = select.poll()
        poll.register(group.oom_event, select.POLLIN)
        while poll.poll(0):  # until the host has taken the event, and nothing else was there
            time.sleep(0.001)
        theirs.send(json.dumps(_ENDED).encode())

    init = threading.Thread(target=tell)
    init.start()
    try:
        supervisor = Supervisor(
            sandbox,
            group,  # type: ignore[arg-type]
            on_output=None,
            on_ready=lambda: None,
            on_doors=lambda _report, _sockets: None,
        )
        found = supervisor.supervise(lambda: time.monotonic() + 30, lambda: None)
    finally:
        init.join()
        sandbox.close()
        process.kill()
        process.wait()
        for descriptor in (says, says_nothing, group.oom_event):
            os.close(descriptor)
        theirs.close()
    assert isinstance(found, Supervised)
    assert (found.stop, found.usage, found.stdout.kept) == (
        None,
        ["oom_kill 0"],
        b"all it had to say",
    )
