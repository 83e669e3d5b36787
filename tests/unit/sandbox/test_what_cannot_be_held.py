"""A sandbox that has something to hand over to a host without descriptors."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from actum.errors import SandboxUnavailable
from actum.sandbox.handle import Sandbox


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    limits, held = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def init() -> Iterator[subprocess.Popen[bytes]]:
    """Stands for one; it is only to be killed."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def sandbox(init: subprocess.Popen[bytes]) -> Iterator[Sandbox]:
    """It has just said that it is ready, and handed over a folder."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        folder = os.open("/", os.O_PATH)
        socket.send_fds(theirs, [b'{"kind": "ready"}'], [folder])
        os.close(folder)
        one = Sandbox(ours, -1, -1, -1, os.pidfd_open(init.pid), -1)
        yield one
        one.close()


def test_who_waits_is_let_go(sandbox: Sandbox, init: subprocess.Popen[bytes]) -> None:
    with no_descriptors():
        assert not sandbox.still_waiting()
    assert init.wait(10) == -signal.SIGKILL


def test_who_is_asked_is_told_why(sandbox: Sandbox) -> None:
    with no_descriptors(), pytest.raises(SandboxUnavailable, match="no descriptors left"):
        sandbox.receive()


def test_with_descriptors_it_waits(sandbox: Sandbox) -> None:
    assert sandbox.still_waiting()
    assert os.listdir(f"/proc/self/fd/{sandbox.artifacts}")
