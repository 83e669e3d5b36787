"""Keeps one Python interpreter for many snippets, inside a sandbox. Started by `snippet.py`.

Two processes. The *porter* (this one) owns the lines to and from the host; the *interpreter*, its
child, runs the snippets and keeps their state. Snippets can do to the interpreter what they like:
its stdout and stderr are pipes of the porter's, so nothing they print can pass for a line to the
host; the porter is not dumpable, so they cannot reach its descriptors or memory. An order carries a
word that nobody knows before, and only what is said with that word is its answer. The interpreter
itself can be made to say anything by what ran in it before: an answer is the session's word about
itself, and nobody's else.

Lines to the host: `o` and `e` (output), `a` (the answer), `x` (the interpreter has ended).
"""

from __future__ import annotations

import array
import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    CarryOut = Callable[[dict[str, Any], dict[str, Any]], tuple[int, str]]

_WORD_BYTES = 32
_ANSWER_BYTES = 2 << 20
_PACKET_BYTES = 1 << 15
_CHUNK_BYTES = 48 << 10
_LAST, _MORE = b"l", b"m"
_DUMPABLE = 4  # PR_SET_DUMPABLE
#: So that no line spells a secret in base64 and gets it cut out of its middle: the host looks for
#: secrets in what is said, once it is put together.
_VEIL = bytes(byte ^ 0x5A for byte in range(256))


def main(imports: list[str], do_imports: Callable[[list[str]], None], carry_out: CarryOut) -> None:
    """Never returns."""
    orders_read, orders_write = os.pipe()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    go_read, go_write = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        os.read(go_read, 1)  # until the porter is out of reach
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (out_write, 1), (err_write, 2)):
            os.dup2(source, target)
        for descriptor in (nothing, out_read, out_write, err_read, err_write, orders_write):
            os.close(descriptor)
        os.close(go_read)
        os.close(go_write)
        ours.close()
        do_imports(imports)
        _interpret(orders_read, theirs, carry_out)
    import ctypes

    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
    for descriptor in (orders_read, out_write, err_write, go_read):
        os.close(descriptor)
    theirs.close()
    os.write(go_write, b"1")
    os.close(go_write)
    _Porter(child, orders_write, ours, {out_read: b"o", err_read: b"e"}).serve()


# -- the interpreter ------------------------------------------------------------------------


def _interpret(orders: int, answers: socket.socket, carry_out: CarryOut) -> NoReturn:
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    own = os.getpid()
    while True:
        head = _exactly(orders, _WORD_BYTES + 8)
        word, length = head[:_WORD_BYTES], int(head[_WORD_BYTES:], 16)
        code, answer = carry_out(json.loads(_exactly(orders, length)), space)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed or replaced by a snippet
                stream.flush()
        if os.getpid() != own:
            os._exit(code)  # a child that a snippet forked is done with its snippet, too
        # The answer is an object, as text; it gets one more name.
        text = (f'{{"code": {code}, {answer[1:]}' if answer else f'{{"code": {code}}}').encode()
        if len(text) > _ANSWER_BYTES:
            text = json.dumps({"code": code, "value": None, "repr": "too long"}).encode()
        for start in range(0, len(text), _PACKET_BYTES):
            last = start + _PACKET_BYTES >= len(text)
            part = text[start : start + _PACKET_BYTES]
            answers.send(word + (_LAST if last else _MORE) + part)


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
        self._stray = 0  #: bytes that were said while nobody had asked
        self._unread = bytearray()
        os.set_blocking(orders, False)
        answers.setblocking(False)
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def serve(self) -> NoReturn:
        first = True
        while True:
            # Before the first order a child that failed is kept: its own words say why.
            word, _, order = self._next_line(watch=not first).partition(b" ")
            if not first:
                self._drop_strays()
            first = False
            answer = self._carry(word, word + b"%08x" % len(order) + order)
            _say(b"a%d " % self._stray + _veiled(answer))

    def _next_line(self, *, watch: bool) -> bytes:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while b"\n" not in self._unread:
            for descriptor, _event in poll.poll():
                if descriptor == 0:
                    part = os.read(0, 1 << 16)
                    if not part:
                        os._exit(0)  # the host hung up: init ends whatever is left
                    self._unread += part
                elif watch:
                    self._reap()
                else:
                    poll.unregister(self._woken)
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread = bytearray(rest)
        return line

    def _carry(self, word: bytes, order: bytes) -> bytes:
        """One order to the interpreter; its output to the host while it works; its answer."""
        answer = bytearray()
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
                        poll.unregister(descriptor)  # closed by every snippet and its children
                elif descriptor == 0:
                    self._relay_rest()
                    os._exit(0)  # the host hung up, or spoke out of turn
                elif descriptor == self._woken:
                    self._reap()
                elif not event & select.POLLIN:
                    # It hung up. Either it is dead, which we hear otherwise, or it will be late.
                    poll.unregister(descriptor)
                elif self._hear(word, answer):
                    # What was written before the answer is in the pipes by now.
                    self._relay_rest()
                    return bytes(answer)

    def _write(self, pending: memoryview, event: int) -> int:
        if event & select.POLLERR:
            return len(pending)  # nobody reads it any more; its death or the deadline will tell
        with contextlib.suppress(BlockingIOError):
            return os.write(self._orders, pending)
        return 0

    def _hear(self, word: bytes, answer: bytearray) -> bool:
        """Take one packet; true once the answer is whole. Other words are no answer."""
        with contextlib.suppress(BlockingIOError):
            packet = self._answers.recv(_WORD_BYTES + 1 + _PACKET_BYTES)
            if packet[:_WORD_BYTES] != word:
                self._stray += len(packet)
                return False
            answer += packet[_WORD_BYTES + 1 :]
            if len(answer) > _ANSWER_BYTES:
                self._end(b"said more than an answer may hold")
            return packet[_WORD_BYTES : _WORD_BYTES + 1] == _LAST
        return False

    def _relay(self, descriptor: int, most: int) -> int:
        chunk = os.read(descriptor, min(most, _CHUNK_BYTES))
        if chunk:
            _say(self._outputs[descriptor] + _veiled(chunk))
        return len(chunk)

    def _relay_rest(self) -> None:
        """Only what is there now: whoever goes on writing would never let us end."""
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
        """Leave together with the interpreter, and say how it went."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 512)
        pid, status = os.waitpid(self._child, os.WNOHANG)
        if pid == 0:
            return
        self._relay_rest()
        code = os.waitstatus_to_exitcode(status)
        _say(b"x%d %d" % (self._stray, code))
        os._exit(128 - code if code < 0 else code or 1)

    def _end(self, why: bytes) -> NoReturn:
        self._relay_rest()
        _say(b"x%d %s" % (self._stray, why))
        os._exit(1)


def _veiled(content: bytes) -> bytes:
    return base64.b64encode(content.translate(_VEIL))


def _ready(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def _say(line: bytes) -> None:
    left = memoryview(line + b"\n")
    while left:
        left = left[os.write(1, left) :]
