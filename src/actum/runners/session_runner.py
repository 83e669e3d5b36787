"""A runner that carries out all plans in one interpreter, which stays running.

It starts nothing: the session's own execution did. It accepts a plan only if the plan differs from
the session's in nothing but its input and its time. Everything from the channel is untrusted output
of the session; the runner that started the interpreter reports how it ended.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import select
import time
from typing import TYPE_CHECKING

from actum.capture.collection import ARTIFACT, shown
from actum.capture.model import (
    NOT_COMPARED_YET,
    Cancelled,
    Capture,
    Collected,
    CoverLost,
    DeadlinePassed,
    Ending,
    Enforced,
    Exited,
    Failed,
    GoverningChanged,
    LimitKilled,
    PolicyBroken,
    Stream,
    later,
    network_denials,
)
from actum.capture.streams import keeper
from actum.contract.call import EffectivePolicy, Plan
from actum.contract.canonical import blake3_bytes, sha256_bytes
from actum.contract.limits import ARTIFACTS_BYTES, IDLE_S, MESSAGE_BYTES, STDERR_BYTES, STDOUT_BYTES
from actum.errors import Refused
from actum.evidence.records.trace import Emit, EventType
from actum.runners.base import (
    Cancel,
    Capability,
    Channel,
    OnOutput,
    Permit,
    Runner,
    require_proof,
)
from actum.runners.lifecycle import Lifecycle, never_started
from actum.value import replace

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction

VALUE = "value.json"
_STILL_THERE = ("the session, which has a receipt of its own",)


class SessionRunner:
    """One call at a time: the caller holds the session."""

    def __init__(self, inner: Runner, plan: Plan, channel: Channel) -> None:
        self.kind = inner.kind
        self._inner = inner
        self._plan = plan
        self._channel = channel
        self._ended = ""
        self.broken_off = False  #: whether a call was stopped in the middle
        self.calls = 0
        self.failed = 0  #: calls that did not end well
        self.stray_bytes = 0  #: output between calls, or without the call's token

    @property
    def ended(self) -> str:
        """Why it accepts no more calls; empty while it does."""
        if not self._ended and self._is_over():
            self._ended = _why(self._channel.close())
        return self._ended

    def _is_over(self) -> bool:
        if self._channel.over:
            return True
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        if poll.poll(0):  # between two calls only the end can arrive
            self._channel.receive(0.0)
        return bool(self._channel.over)

    def end(self, why: str) -> None:
        self._ended = self._ended or why

    def capabilities(self) -> tuple[Capability, ...]:
        return self._inner.capabilities()

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        return self._inner.foresee(policy)

    def takes_overlay(self, plan: Plan, grant: str) -> bool:
        return self._inner.takes_overlay(plan, grant)

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        require_proof(plan)
        foreseen = self.foresee(plan.policy)
        self._require_fit(plan)
        if permit is not None:
            permit()
        if cancel is not None and cancel.requested:
            return never_started(plan, self.kind, emit, foreseen)
        self.calls += 1
        lifecycle = Lifecycle(plan, self.kind, emit)
        lifecycle.reached(EventType.TOOL_RUN_START, {"attempt": plan.trace.attempt})
        lifecycle.reached(
            EventType.TOOL_RUN_RESOURCE_APPLIED,
            {"limits": [row.limit for row in foreseen if row.enforced]},
        )
        try:
            output = _Output(on_output, self._channel.redaction)
            before = self._channel.refused()
            ending = self._converse(plan, output, cancel)
            capture = self._captured(ending, output, foreseen, lifecycle.elapsed_ms())
            refused = later(before, self._channel.refused())
            capture = replace(capture, connections=refused, denials=network_denials(refused))
        except BaseException:
            self.broken_off = True
            self.end("a call was broken off")
            lifecycle.abort()
            raise
        self.failed += ending != Exited(0)
        return lifecycle.conclude(capture, 0, self._channel.redaction)

    def open(
        self,
        plan: Plan,
        emit: Emit,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
        *,
        idle_s: float = IDLE_S,
        message_bytes: int = MESSAGE_BYTES,
    ) -> Channel:
        raise NotImplementedError("a session is open already")

    def rest(self) -> None:
        """Nothing to prepare: the session is ready for the next call."""

    def close(self) -> None:
        """Nothing to close: the session belongs to its opener."""

    def _require_fit(self, plan: Plan) -> None:
        if self.ended:
            raise Refused(
                "SESSION_ENDED",
                f"The session accepts no more calls: {self._ended}.",
                remedy="Open a new session; the state of the old one is lost.",
            )
        if _but_input_and_time(plan) != _but_input_and_time(self._plan):
            raise Refused(
                "SESSION_CHANGED",
                "The call's tool, limits or paths differ from those of the session.",
                remedy="Open a new session; the current settings then apply to all of it.",
            )

    def _converse(self, plan: Plan, output: _Output, cancel: Cancel | None) -> Ending:
        deadline = time.monotonic() + plan.policy.limits.timeout_ms / 1000
        word = secrets.token_hex(16).encode()
        if not self._channel.send(word + b" " + base64.b64encode(plan.stdin), deadline):
            return self._broken(output, deadline, cancel)
        stop = -1 if cancel is None else cancel.fileno()
        while True:
            line = self._channel.receive(deadline, stop)
            if line is None:
                return self._broken(output, deadline, cancel)
            answered = output.take(line)
            if answered is not None:
                return self._concluded(answered, output)
            # Endless output must not delay the deadline.
            if time.monotonic() >= deadline or _asked(cancel):
                return self._broken(output, deadline, cancel)

    def _concluded(self, answered: bytes, output: _Output) -> Ending:
        """The call ended with this line of the porter."""
        self.stray_bytes = output.stray
        if answered == b"a":
            return Exited(output.code)
        how = output.death
        self.end(f"its interpreter {how} in the middle of a call")
        whole = self._channel.close()
        if isinstance(whole.ending, LimitKilled | PolicyBroken | CoverLost | GoverningChanged):
            return whole.ending
        return Failed(f"the interpreter {how} before it had answered")

    def _broken(self, output: _Output, deadline: float, cancel: Cancel | None) -> Ending:
        """No answer will come: end the session, and return the ending that the host knows."""
        late = time.monotonic() >= deadline
        over = self._channel.over
        self._hear_out(output)
        whole = self._channel.close()
        self._hear_out(output)  # output that the porter passed on after its stdin was closed
        output.answer = b""  # too late
        output.files.clear()
        if isinstance(whole.ending, LimitKilled | PolicyBroken | CoverLost | GoverningChanged):
            self.end(f"a call was ended for its limits ({type(whole.ending).__name__})")
            return whole.ending
        self.broken_off = _asked(cancel) or late or isinstance(whole.ending, DeadlinePassed)
        if _asked(cancel):
            self.end("a call was cancelled")
            return Cancelled(9)
        if late:
            self.end("a call took longer than its time")
            return DeadlinePassed(9)
        if isinstance(whole.ending, DeadlinePassed):
            self.end("its own time is over")
            return whole.ending
        self.end(f"it broke off in the middle of a call ({over or 'it has ended'})")
        return Failed(f"the session broke off before it had answered: {over or 'it has ended'}")

    def _hear_out(self, output: _Output) -> None:
        """Read the output that is there already, up to a limit."""
        while output.total < _DRAIN_BYTES and (line := self._channel.receive(0.0)) is not None:
            output.take(line)

    def _captured(
        self, ending: Ending, output: _Output, foreseen: tuple[Enforced, ...], duration_ms: int
    ) -> Capture:
        stdout, stderr = output.streams()
        peaks: dict[str, tuple[int | None, bool]] = {
            "timeout_ms": (duration_ms, isinstance(ending, DeadlinePassed)),
            "stdout_bytes": (stdout.total_bytes, stdout.truncated),
            "stderr_bytes": (stderr.total_bytes, stderr.truncated),
        }
        # Limits that are not measured per call have the figures of the session so far.
        peaks = {row.limit: (row.peak, row.tripped) for row in self._channel.enforcement()} | peaks
        rows = []
        for row in foreseen:
            peak, tripped = peaks.get(row.limit, (None, False))
            rows.append(replace(row, peak=peak, tripped=tripped))
        return Capture(
            ending=ending,
            stdout=stdout,
            stderr=stderr,
            collected=_collected(output),
            enforcement=tuple(rows),
            duration_ms=duration_ms,
            workspace=NOT_COMPARED_YET if self._plan.policy.writes_directly else None,
            leftovers=() if self._ended else _STILL_THERE,
        )


_VEIL = bytes(byte ^ 0x5A for byte in range(256))  #: as in `sandbox.session_program`

_NUMBERS = re.compile(rb"([0-9]{1,8}) ([0-9]{1,8})\n")

#: The longest answer: a value and files, as `sandbox.session_program` limits them.
_ANSWER_BYTES = 20 << 20
_MOST_FILES = 256
_MOST_CODE = 255
_PATH_BYTES = 1_024

#: Limit on output of an ended session that is still read.
_DRAIN_BYTES = 8 << 20


class _Output:
    """The output of one call."""

    def __init__(self, on_output: OnOutput | None, redaction: Redaction | None) -> None:
        self._on_output = on_output
        self.keepers = {
            b"o": keeper(STDOUT_BYTES, redaction),
            b"e": keeper(STDERR_BYTES, redaction),
        }
        self._parts = bytearray()
        self.answer = b""
        self.files: list[Collected] = []
        self.code = 1
        self.death = ""
        self.stray = 0
        self.total = 0

    def take(self, line: bytes) -> bytes | None:
        """Take one line of the porter. Returns ``a`` or ``x`` if it is the last of this call."""
        kind, rest = line[:1], line[1:]
        self.total += len(line)
        try:
            if kind in self.keepers:
                self._show(kind, bytes(self.keepers[kind].feed(_unveiled(rest))))
                return None
            if kind == b"p":
                self._add(_unveiled(rest))
                return None
            stray, _, content = rest.partition(b" ")
            self.stray = int(stray)
            if kind == b"a":
                self._add(_unveiled(content))
                self._read_answer(bytes(self._parts))
            else:
                self.death = _death(content)
        except (ValueError, RecursionError, binascii.Error):
            self.death = "sent an invalid answer"
            return b"x"
        return kind

    def streams(self) -> tuple[Stream, Stream]:
        """The streams, when there is no more output."""
        for kind, kept in self.keepers.items():
            self._show(kind, kept.rest())
        return self.keepers[b"o"].finish(), self.keepers[b"e"].finish()

    def _show(self, kind: bytes, chunk: bytes) -> None:
        if self._on_output is not None and chunk:
            self._on_output("stdout" if kind == b"o" else "stderr", chunk)

    def _add(self, part: bytes) -> None:
        self._parts += part
        if len(self._parts) > _ANSWER_BYTES:
            raise ValueError

    def _read_answer(self, content: bytes) -> None:
        """The exit code, the value, then files: each with its lengths on a line. The value is
        stored as it is, and not parsed before the record is closed."""
        code, length, start = _two_numbers(content, 0)
        answer = _slice(content, start, length)
        start += length
        files: list[Collected] = []
        while start < len(content):
            named, length, start = _two_numbers(content, start)
            path = _slice(content, start, named)
            files.append(_working_file(path, _slice(content, start + named, length)))
            start += named + length
        names = {each.path for each in files}
        total = sum(each.size for each in files) + len(answer)
        if len(names) < len(files) or len(names) > _MOST_FILES or total > ARTIFACTS_BYTES:
            raise ValueError
        if code > _MOST_CODE:
            raise ValueError
        self.code, self.answer, self.files = code, answer, files


def _two_numbers(content: bytes, start: int) -> tuple[int, int, int]:
    """Two numbers on a line, and where the next line starts."""
    found = _NUMBERS.match(content, start)
    if found is None:
        raise ValueError
    return int(found[1]), int(found[2]), found.end()


def _slice(content: bytes, start: int, length: int) -> bytes:
    if start + length > len(content):
        raise ValueError
    return content[start : start + length]


def _working_file(path: bytes, content: bytes) -> Collected:
    """A file as the session names it. The name is a label: no path of the host is made of it."""
    parts = path.split(b"/")
    if (
        len(path) > _PATH_BYTES
        or b"\0" in path
        or any(part in (b"", b".", b"..") for part in parts)
    ):
        raise ValueError
    return Collected(
        name=shown(parts[-1]),
        path=shown(b"cwd/" + path),
        kind=ARTIFACT,
        content=content,
        sha256=sha256_bytes(content),
        blake3=blake3_bytes(content),
    )


def _unveiled(text: bytes) -> bytes:
    return base64.b64decode(text).translate(_VEIL)


def _why(whole: Capture) -> str:
    """The reason for the end of a session between two calls."""
    if any(row.limit == "idle_ms" and row.tripped for row in whole.enforcement):
        return "it was idle for longer than its limit"
    if isinstance(whole.ending, DeadlinePassed):
        return "its own time is over"
    return f"it ended between two calls ({type(whole.ending).__name__})"


def _death(content: bytes) -> str:
    text = content.decode("ascii", "replace")
    try:
        code = int(text)
    except ValueError:
        return text[:80]
    return f"died of signal {-code}" if code < 0 else f"exited with code {code}"


def _collected(output: _Output) -> tuple[Collected, ...]:
    """The files and the value of a call."""
    return (*output.files, *([_value(output.answer)] if output.answer else []))


def _value(content: bytes) -> Collected:
    return Collected(
        name=VALUE,
        path=VALUE,
        kind="artifact",
        content=content,
        sha256=sha256_bytes(content),
        blake3=blake3_bytes(content),
    )


def _asked(cancel: Cancel | None) -> bool:
    return cancel is not None and cancel.requested


def _but_input_and_time(plan: Plan) -> tuple[object, ...]:
    document = plan.policy.document()
    document["limits"] = {**document["limits"], "timeout_ms": None}
    return (
        plan.tool,
        plan.adapter,
        plan.argv,
        dict(plan.environment),
        plan.working_directory,
        plan.proof.executable,
        plan.secrets,
        document,
    )
