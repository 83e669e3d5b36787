"""The host's side of the jail: starts the spawner, orders sandboxes, holds their handles."""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, cast

from actum.errors import SandboxUnavailable
from actum.sandbox import wire
from actum.value import field, value

if TYPE_CHECKING:
    from actum.sandbox.wire import Order, Report, Request

#: More than a namespace takes to vanish; one that does not is stuck in the kernel.
_DEATH_MS = 10_000
_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actum.sandbox.spawner import main; "
    "main(int(sys.argv[2]), int(sys.argv[3]))"
)


def _memory_file(name: str, content: bytes) -> int:
    """A sealed anonymous file: no size limit of a packet, no path, nothing left on disk."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(
        descriptor,
        fcntl.F_ADD_SEALS,
        fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
    )
    return descriptor


@value(frozen=False, kw_only=False)
class Sandbox:
    """A handle on one sandbox. Whoever holds it closes it."""

    control: socket.socket
    stdout: int
    stderr: int
    pidfd: int = -1
    artifacts: int = -1
    doomed: bool = False  #: a kill was asked for before we knew whom
    early: list[tuple[Report, list[int]]] = field(default_factory=list)  #: read, not yet taken

    def still_waiting(self) -> bool:
        """Take in what was reported so far; false once the tool has ended or never started."""
        poll = select.poll()  # select() knows no descriptor beyond 1023
        poll.register(self.control, select.POLLIN)
        while poll.poll(0):
            received = self._receive()
            if received is None:
                return False
            self.early.append(received)
        return not any(report["kind"] in ("ended", "failed") for report, _ in self.early)

    def receive(self) -> tuple[Report, list[int]] | None:
        """The next report and the descriptors that came along; ``None`` once the init is gone."""
        return self.early.pop(0) if self.early else self._receive()

    def _receive(self) -> tuple[Report, list[int]] | None:
        rights = array.array("i")
        try:
            packet, ancillary = self._packet(rights.itemsize)
        except ConnectionResetError:
            # It left without reading all of our words. The kernel says so once; what it had said
            # before is still there.
            packet, ancillary = self._packet(rights.itemsize)
        if not packet:
            return None
        report = cast("Report", json.loads(packet))
        for _level, _kind, data in ancillary:
            rights.frombytes(data)
        if report["kind"] == "pid":
            self.pidfd = rights.pop()
            if self.doomed:
                self.kill()
        elif report["kind"] == "started":
            self.artifacts = rights.pop()
        return report, list(rights)

    def _packet(self, size: int) -> tuple[bytes, list[tuple[int, int, bytes]]]:
        packet, ancillary, _flags, _address = self.control.recvmsg(
            wire.MAX_PACKET,
            socket.CMSG_SPACE(wire.MAX_PASSED * size),
            socket.MSG_CMSG_CLOEXEC,
        )
        return packet, ancillary

    def ask_listeners(self, address: str, ports: tuple[int, ...]) -> None:
        """More sockets in the sandbox's network; they arrive as a `listening` report."""
        order = json.dumps({"address": address, "ports": list(ports)}).encode()
        try:
            self.control.send(order)
        except (BrokenPipeError, ConnectionResetError):
            return  # already gone

    def go(self) -> None:
        """Let the tool start; until now everything was preparation."""
        try:
            self.control.send(wire.GO)
        except (BrokenPipeError, ConnectionResetError):
            return  # it could not be built: its last report, still to be read, says why

    def terminate(self) -> None:
        """SIGTERM to every process inside."""
        try:
            self.control.send(wire.TERMINATE)
        except (BrokenPipeError, ConnectionResetError):
            return  # already gone

    def kill(self) -> None:
        """SIGKILL to the init, and so to the whole namespace."""
        if self.pidfd < 0:
            self.doomed = True
            return
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # already gone

    def await_pid(self) -> None:
        """The spawner's word may come after the init's own; without it nobody can be waited for."""
        while self.pidfd < 0 and self.receive() is not None:
            pass

    def await_end(self) -> None:
        """Until a killed init is gone, and with it everything inside."""
        if self.pidfd >= 0:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            poll.poll(_DEATH_MS)

    def discard(self) -> None:
        """End one that is not wanted any more, and wait until nothing of it is alive."""
        self.kill()
        self.await_pid()
        self.await_end()
        self.close()

    def close(self) -> None:
        self.control.close()
        for descriptor in (self.stdout, self.stderr, self.pidfd, self.artifacts):
            if descriptor >= 0:
                os.close(descriptor)
        self.stdout = self.stderr = self.pidfd = self.artifacts = -1


class Spawner:
    """One spawner process, started on first use, shared by all threads."""

    def __init__(self, *, pool_size: int = 0) -> None:
        self._pool_size = pool_size
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._ready = False

    def start(self) -> None:
        """Start now rather than at the first sandbox; returns without waiting for readiness."""
        with self._lock:
            self._ensure_started()

    def _ensure_started(self) -> socket.socket:
        if self._process is not None and self._process.poll() is None and self._socket:
            return self._socket
        self._discard()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        interpreter = os.path.realpath(sys.executable)
        self._process = subprocess.Popen(
            [
                interpreter,
                *("-I", "-S", "-c", _BOOT, _SOURCE),
                *(str(theirs.fileno()), str(self._pool_size)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={},
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        self._socket = ours
        self._ready = False
        return ours

    def launch(
        self, order: Order, request: Request, stdin: bytes | int, task_limit: int, doors: list[int]
    ) -> Sandbox:
        """Ask for one sandbox; the first report on its control socket is its pid."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        for descriptor in (out_read, err_read):
            os.set_blocking(descriptor, False)
        passed = [
            theirs.fileno(),
            _memory_file("request", json.dumps(request).encode()),
            _memory_file("stdin", stdin) if isinstance(stdin, bytes) else os.dup(stdin),
            out_write,
            err_write,
        ]
        rights = array.array("i", [*passed, task_limit, *doors])
        try:
            with self._lock:
                server = self._ensure_started()
                self._await_ready(server)
                server.sendmsg(
                    [json.dumps(order).encode()],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
                )
        except BaseException as error:
            ours.close()
            os.close(out_read)
            os.close(err_read)
            if isinstance(error, BrokenPipeError | ConnectionResetError):
                raise SandboxUnavailable(
                    "The spawner process died before it took the order; the tool was not started.",
                    remedy="Run the command again; `actum doctor` tells what this host offers.",
                ) from error
            raise
        finally:
            theirs.close()
            for descriptor in passed[1:]:
                os.close(descriptor)
        return Sandbox(control=ours, stdout=out_read, stderr=err_read)

    def _await_ready(self, server: socket.socket) -> None:
        if self._ready:
            return
        if not server.recv(16):
            process = cast("subprocess.Popen[bytes]", self._process)
            _out, text = process.communicate()
            last = text.decode(errors="replace").strip().splitlines()[-1:]
            self._discard()
            raise SandboxUnavailable(
                f"The spawner could not set itself up: {''.join(last)}.",
                remedy="`actum doctor` tells what this host lacks.",
            )
        self._ready = True

    def _discard(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None

    def close(self) -> None:
        """Hang up; the spawner ends and takes every sandbox still alive with it."""
        with self._lock:
            self._discard()
