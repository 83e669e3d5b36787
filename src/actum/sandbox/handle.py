"""A handle on one sandbox: its streams, its init, and the host's messages to it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from actum.errors import SandboxUnavailable
from actum.sandbox import wire
from actum.sandbox.packets import DescriptorsLost, pass_document, receive
from actum.value import field, value

if TYPE_CHECKING:
    from actum.sandbox.wire import Report

#: More than the end of a namespace takes; one that takes longer is stuck in the kernel.
_DEATH_MS = 10_000
#: Reports are our own JSON, without surrounding whitespace.
_parse = json.JSONDecoder().raw_decode


@value(frozen=False, kw_only=False)
class Sandbox:
    """A handle on one sandbox. The holder closes it."""

    control: socket.socket
    stdin: int
    stdout: int
    stderr: int
    pidfd: int
    start: int  #: an eventfd: first ring, the request was sent; second ring, the tool may start
    artifacts: int = -1
    #: Whether the next `kill` is a message to the init, which then still reports the end with all
    #: counters. Where the init is in the tool's own groups, they end with it.
    asks_first: bool = False
    early: list[tuple[Report, list[int]]] = field(
        default_factory=list
    )  #: received, not yet processed
    reports: select.poll = field(default_factory=select.poll)  #: select() stops at 1023 descriptors

    def __post_init__(self) -> None:
        self.reports.register(self.control, select.POLLIN)

    def still_waiting(self, wait_ms: int = 0) -> bool:
        """Receive all pending reports, waiting up to `wait_ms` for the first; false once the tool
        has ended or could not start."""
        while self.reports.poll(0 if self.early else wait_ms):
            try:
                received = self._receive()
            except SandboxUnavailable:
                self.kill()  # its descriptors are lost, so it is of no use
                return False
            if received is None:
                return False
            self.early.append(received)
        return not any(report["kind"] in ("ended", "failed") for report, _ in self.early)

    def receive(self) -> tuple[Report, list[int]] | None:
        """The next report and its descriptors; ``None`` once the init is gone."""
        return self.early.pop(0) if self.early else self._receive()

    def _receive(self) -> tuple[Report, list[int]] | None:
        try:
            packet, descriptors = receive(self.control)
        except ConnectionResetError:
            # It exited without reading all of our messages. The kernel reports that once; its own
            # earlier messages are still there.
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
        """Send the packed request that it waits for; the tool starts on `go`."""
        passed = []
        if isinstance(stdin, int):
            passed.append(stdin)
        else:
            written = 0
            while written < len(stdin):
                written += os.pwrite(self.stdin, memoryview(stdin)[written:], written)
        os.close(self.stdin)
        self.stdin = -1
        # If it could not be built, its last report, still unread, has the reason.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            try:
                pass_document(self.control, request, passed)
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:
                    raise not_passed() from error
                raise
        os.write(self.start, wire.RING)

    def ask_listeners(self, address: str, ports: tuple[int, ...]) -> None:
        """Request more sockets in the sandbox's network; they arrive as a `listening` report."""
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
        """SIGKILL to the init, and so to the whole namespace; or first a message to the init."""
        if self.asks_first:
            self.asks_first = False
            with contextlib.suppress(OSError):
                self.control.send(wire.KILL, socket.MSG_DONTWAIT)
                return
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # already gone

    def await_gone(self) -> bool:
        """Wait until only the init is left, which exits when the socket is closed. Returns whether
        the first control group is removed; the kernel refuses that while it holds a process."""
        return self._await_removal("gone")

    def await_cleared(self) -> bool:
        """After `await_gone`: wait for the other groups. Returns whether they are removed."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the init is gone
            self.control.send(wire.CLEAR)
        return self._await_removal("cleared")

    def _await_removal(self, kind: str) -> bool:
        while self.reports.poll(_DEATH_MS):
            received = self.receive()
            if received is None:
                self.await_end()  # killed meanwhile, and with it everything inside
                return False
            if received[0]["kind"] == kind:
                return received[0]["removed"]
        return False

    def await_end(self) -> None:
        """Wait until a killed init is gone, and with it everything inside."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        poll.poll(_DEATH_MS)

    def is_alive(self) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def discard(self) -> None:
        """Kill the sandbox, and wait until no process of it is left."""
        self.asks_first = False
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


def not_passed() -> SandboxUnavailable:
    return SandboxUnavailable(
        "This user's processes have sent too many descriptors that were not received yet.",
        remedy="End the tool or program that keeps them, or raise the limit (`ulimit -n`).",
    )


def no_descriptors() -> SandboxUnavailable:
    return SandboxUnavailable(
        "This process has no descriptors left for a sandbox.",
        remedy="Close files that are not needed, or raise the limit (`ulimit -n`).",
    )
