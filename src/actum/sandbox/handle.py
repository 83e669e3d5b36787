"""A handle on one sandbox: its streams, its init, and the few words the host has for it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from actum.errors import SandboxUnavailable
from actum.sandbox import wire
from actum.sandbox.talk import DescriptorsLost, pass_document, receive
from actum.value import field, value

if TYPE_CHECKING:
    from actum.sandbox.wire import Report

#: More than a namespace takes to vanish; one that does not is stuck in the kernel.
_DEATH_MS = 10_000
#: Our own words, without a byte around them.
_parse = json.JSONDecoder().raw_decode


@value(frozen=False, kw_only=False)
class Sandbox:
    """A handle on one sandbox. Whoever holds it closes it."""

    control: socket.socket
    stdin: int
    stdout: int
    stderr: int
    pidfd: int
    start: int  #: an eventfd: the request has been sent; and then, the tool may start
    artifacts: int = -1
    early: list[tuple[Report, list[int]]] = field(default_factory=list)  #: read, not yet taken
    reports: select.poll = field(default_factory=select.poll)  #: select() stops at 1023 descriptors

    def __post_init__(self) -> None:
        self.reports.register(self.control, select.POLLIN)

    def still_waiting(self, wait_ms: int = 0) -> bool:
        """Take in what was reported so far, or until then if nothing was; false once the tool has
        ended or never started."""
        while self.reports.poll(0 if self.early else wait_ms):
            try:
                received = self._receive()
            except SandboxUnavailable:
                self.kill()  # what it has to hand over is lost, so it serves nobody
                return False
            if received is None:
                return False
            self.early.append(received)
        return not any(report["kind"] in ("ended", "failed") for report, _ in self.early)

    def receive(self) -> tuple[Report, list[int]] | None:
        """The next report and the descriptors that came along; ``None`` once the init is gone."""
        return self.early.pop(0) if self.early else self._receive()

    def _receive(self) -> tuple[Report, list[int]] | None:
        try:
            packet, descriptors = receive(self.control)
        except ConnectionResetError:
            # It left without reading all of our words. The kernel says so once; what it had said
            # before is still there.
            packet, descriptors = receive(self.control)
        except DescriptorsLost as error:
            raise no_descriptors() from error
        if not packet:
            return None
        report: Report = _parse(packet.decode())[0]
        if report["kind"] == "ready":
            self.artifacts = descriptors.pop()
        return report, descriptors

    def give(self, request: bytes, stdin: bytes | int) -> None:
        """The one request it waits for, packed; the tool starts when it is told to go."""
        passed = []
        if isinstance(stdin, int):
            passed.append(stdin)
        else:
            written = 0
            while written < len(stdin):
                written += os.pwrite(self.stdin, memoryview(stdin)[written:], written)
        os.close(self.stdin)
        self.stdin = -1
        # If it could not be built, its last report, still to be read, says why.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            pass_document(self.control, request, passed)
        os.write(self.start, wire.RING)

    def ask_listeners(self, address: str, ports: tuple[int, ...]) -> None:
        """More sockets in the sandbox's network; they arrive as a `listening` report."""
        try:
            self.control.send(wire.listen_order(address, ports))
        except (BrokenPipeError, ConnectionResetError):
            return  # already gone

    def go(self) -> None:
        """Let the tool start; until now everything was preparation."""
        os.write(self.start, wire.RING)
        os.close(self.start)
        self.start = -1

    def terminate(self) -> None:
        """SIGTERM to every process inside."""
        try:
            self.control.send(wire.TERMINATE)
        except (BrokenPipeError, ConnectionResetError):
            return  # already gone

    def kill(self) -> None:
        """SIGKILL to the init, and so to the whole namespace."""
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # already gone

    def await_gone(self) -> bool:
        """Until nothing is left of what ended but the init, which leaves when it is let go. Whether
        a control group is gone, too, which the kernel keeps as long as it holds a process."""
        return self._await_removal("gone")

    def await_cleared(self) -> bool:
        """After that, the other control groups: whether they are gone."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is gone itself
            self.control.send(wire.CLEAR)
        return self._await_removal("cleared")

    def _await_removal(self, kind: str) -> bool:
        while self.reports.poll(_DEATH_MS):
            received = self.receive()
            if received is None:
                self.await_end()  # killed meanwhile: its end is the end of everything
                return False
            if received[0]["kind"] == kind:
                return received[0]["removed"]
        return False

    def await_end(self) -> None:
        """Until a killed init is gone, and with it everything inside."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        poll.poll(_DEATH_MS)

    def is_alive(self) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def discard(self) -> None:
        """End one that is not wanted any more, and wait until nothing of it is alive."""
        self.kill()
        self.await_end()
        self.close()

    def close(self) -> None:
        self.control.close()
        held = (self.stdin, self.stdout, self.stderr, self.pidfd, self.start, self.artifacts)
        for descriptor in held:
            if descriptor >= 0:
                os.close(descriptor)
        self.stdin = self.stdout = self.stderr = self.pidfd = self.start = self.artifacts = -1


def no_descriptors() -> SandboxUnavailable:
    return SandboxUnavailable(
        "This process has no descriptors left for a sandbox.",
        remedy="Close files that are not needed, or raise the limit (`ulimit -n`).",
    )
