"""Keeps one Python interpreter for many snippets, inside a sandbox. Started by `snippet.py`.

Two processes. The *porter* (this one) owns the lines to and from the host; the *interpreter*, its
child, runs the snippets and holds their state. Snippets have full control of the interpreter. Its
stdout and stderr are pipes to the porter, so no output can pass for a line to the host. The porter
is not dumpable, so snippets cannot reach its descriptors or memory. An order carries a fresh random
token, and only a message with that token is its answer. Earlier snippets can make the interpreter
send anything: an answer is untrusted output of the session.

Lines to the host: `o` and `e` (output), `p` (a part of the answer), `a` (the last part), `x` (the
interpreter has ended).
"""

from __future__ import annotations

import array
import base64
import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn


_WORD_BYTES = 32
_ANSWER_BYTES = 20 << 20
_FILES_BYTES, _FILES = 10 << 20, 250
_PACKET_BYTES = 1 << 15
_CHUNK_BYTES = 48 << 10
_LAST, _MORE = b"l", b"m"
_DUMPABLE = 4  # PR_SET_DUMPABLE
#: So that no line contains a secret in base64, which the host would cut out of the line. The host
#: searches the decoded output for secrets.
_VEIL = bytes(byte ^ 0x5A for byte in range(256))


def main(imports: list[str], do_imports: Callable[[list[str]], None], program: Any) -> None:
    """Never returns. `program` is the module that runs snippets."""
    orders_read, orders_write = os.pipe()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    go_read, go_write = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        os.read(go_read, 1)  # until the porter is not dumpable
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (out_write, 1), (err_write, 2)):
            os.dup2(source, target)
        for descriptor in (nothing, out_read, out_write, err_read, err_write, orders_write):
            os.close(descriptor)
        os.close(go_read)
        os.close(go_write)
        ours.close()
        do_imports(imports)
        program.watch()
        _interpret(orders_read, theirs, program)
    import ctypes

    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
    for descriptor in (orders_read, out_write, err_write, go_read):
        os.close(descriptor)
    theirs.close()
    os.write(go_write, b"1")
    os.close(go_write)
    _Porter(child, orders_write, ours, {out_read: b"o", err_read: b"e"}).serve()


# -- the interpreter ------------------------------------------------------------------------


def _interpret(orders: int, answers: socket.socket, program: Any) -> NoReturn:
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    own = os.getpid()
    while True:
        head = _exactly(orders, _WORD_BYTES + 8)
        word, length = head[:_WORD_BYTES], int(head[_WORD_BYTES:], 16)
        code, answer = program._carry_out(program.read_order(_exactly(orders, length)), space)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed or replaced by a snippet
                stream.flush()
        if os.getpid() != own:
            os._exit(code)  # a child that a snippet forked has ended its snippet, too
        files = b""
        if program.has_new_files():
            files = b"".join(_files(program, len(answer)))
            answer = program.with_left_out(answer)
        text = answer.encode()
        text = b"%d %d\n" % (code, len(text)) + text + files
        for start in range(0, len(text), _PACKET_BYTES):
            last = start + _PACKET_BYTES >= len(text)
            part = text[start : start + _PACKET_BYTES]
            answers.send(word + (_LAST if last else _MORE) + part)


def _files(program: Any, reserved: int) -> Iterator[bytes]:
    """What the snippet wrote in its working directory: lengths, name and content of each file."""
    for path, file in program.watcher().take(_FILES_BYTES - reserved, _FILES):
        content = b"".join(program._beside("working_files").read(file, os.fstat(file).st_size))
        name = os.fsencode(path)
        yield b"%d %d\n" % (len(name), len(content)) + name + content


def _exactly(descriptor: int, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = os.read(descriptor, length - len(parts))
        if not part:
            os._exit(0)  # the porter is gone
        parts += part
    return bytes(parts)


# -- the porter -----------------------------------------------------------------------------


class _Porter:
    def __init__(
        self, child: int, orders: int, answers: socket.socket, outputs: dict[int, bytes]
    ) -> None:
        self._child = child
        self._orders = orders
        self._answers = answers
        self._outputs = outputs
        self._stray = 0  #: bytes of output between two orders
        self._unread = bytearray()
        self._answered = 0  #: bytes of the current answer
        os.set_blocking(orders, False)
        answers.setblocking(False)
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def serve(self) -> NoReturn:
        first = True
        while True:
            # Before the first order a failed child is not reaped: its output has the reason.
            word, _, order = self._next_line(watch=not first).partition(b" ")
            if not first:
                self._drop_strays()
            first = False
            order = base64.b64decode(order)
            last = self._carry(word, word + b"%08x" % len(order) + order)
            _send(b"a%d " % self._stray + _veiled(last))

    def _next_line(self, *, watch: bool) -> bytes:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0:
            searched = len(self._unread)
            for descriptor, _event in poll.poll():
                if descriptor == 0:
                    part = os.read(0, 1 << 16)
                    if not part:
                        os._exit(0)  # the host closed stdin: the init ends the rest
                    self._unread += part
                elif watch:
                    self._reap()
                else:
                    poll.unregister(self._woken)
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _carry(self, word: bytes, order: bytes) -> bytes:
        """Send one order to the interpreter and relay its output and the parts of its answer.
        Returns the last part."""
        self._answered = 0
        pending = memoryview(order)
        poll = select.poll()
        for descriptor in (0, self._woken, self._answers.fileno(), *self._outputs):
            poll.register(descriptor, select.POLLIN)
        poll.register(self._orders, select.POLLOUT)
        self._reap()
        while True:
            for descriptor, event in poll.poll():
                if descriptor == self._orders:
                    pending = pending[self._write(pending, event) :]
                    if not pending:
                        poll.unregister(self._orders)
                elif descriptor in self._outputs:
                    if not self._relay(descriptor, _CHUNK_BYTES):
                        poll.unregister(descriptor)  # closed by all writers
                elif descriptor == 0:
                    self._relay_rest()
                    os._exit(0)  # the host closed stdin, or sent a line out of turn
                elif descriptor == self._woken:
                    self._reap()
                elif not event & select.POLLIN:
                    # It closed the socket. Either it is dead, which SIGCHLD reports, or the
                    # deadline will end it.
                    poll.unregister(descriptor)
                elif (last := self._receive(word)) is not None:
                    # Output written before the answer is in the pipes by now.
                    self._relay_rest()
                    return last

    def _write(self, pending: memoryview, event: int) -> int:
        if event & select.POLLERR:
            return len(pending)  # no reader is left; its end or the deadline follows
        with contextlib.suppress(BlockingIOError):
            return os.write(self._orders, pending)
        return 0

    def _receive(self, word: bytes) -> bytes | None:
        """Receive one packet. Returns the last part of the answer. Other tokens are ignored."""
        with contextlib.suppress(BlockingIOError):
            packet = self._answers.recv(_WORD_BYTES + 1 + _PACKET_BYTES)
            if packet[:_WORD_BYTES] != word:
                self._stray += len(packet)
                return None
            part = packet[_WORD_BYTES + 1 :]
            self._answered += len(part)
            if self._answered > _ANSWER_BYTES:
                self._end(b"sent an answer over the limit")
            if packet[_WORD_BYTES : _WORD_BYTES + 1] == _LAST:
                return part
            _send(b"p" + _veiled(part))
        return None

    def _relay(self, descriptor: int, most: int) -> int:
        chunk = os.read(descriptor, min(most, _CHUNK_BYTES))
        if chunk:
            _send(self._outputs[descriptor] + _veiled(chunk))
        return len(chunk)

    def _relay_rest(self) -> None:
        """Relay only the bytes that are there now: a process may go on writing for ever."""
        for descriptor in self._outputs:
            left = _ready(descriptor)
            while left > 0 and (count := self._relay(descriptor, left)):
                left -= count

    def _drop_strays(self) -> None:
        for descriptor in self._outputs:
            left = _ready(descriptor)
            while left > 0 and (part := os.read(descriptor, left)):
                left -= len(part)
                self._stray += len(part)

    def _reap(self) -> None:
        """Exit together with the interpreter, and report its exit code."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 512)
        pid, status = os.waitpid(self._child, os.WNOHANG)
        if pid == 0:
            return
        self._relay_rest()
        code = os.waitstatus_to_exitcode(status)
        _send(b"x%d %d" % (self._stray, code))
        os._exit(128 - code if code < 0 else code or 1)

    def _end(self, why: bytes) -> NoReturn:
        self._relay_rest()
        _send(b"x%d %s" % (self._stray, why))
        os._exit(1)


def _veiled(content: bytes) -> bytes:
    return base64.b64encode(content.translate(_VEIL))


def _ready(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def _send(line: bytes) -> None:
    left = memoryview(line + b"\n")
    while left:
        left = left[os.write(1, left) :]
