"""Compares an answer of an MCP server with the server's own output schema.

A schema of a server is untrusted, unlike one of `tool.yaml`, which a person has approved. Another
process (`output_schema_process`) compares. It ends by the deadline of the call, by the caller, or
by the kernel when its CPU time is used up. One process compares one answer at a time, so no server
delays the calls of another.

Proved by tests/security/mcp_servers/test_hostile_schemas.py.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

from actum.contract.model import Json
from actum.errors import Fault
from actum.mcp import output_schema_process as process
from actum.mcp.json_rpc import Broken, Late, Stopped
from actum.runners.base import Cancel

#: Limits of one input or output schema.
SCHEMA_BYTES = 262_144
SCHEMA_LEVELS = 64

_IDLE = 4  #: idle processes that are kept for the next answer
_SAID = {
    process.DIFFERS: "its answer does not match its own schema",
    process.NO_SCHEMA: "the schema of its answer is not JSON Schema, or refers to another document",
    process.NO_VALUE: "its answer is nested too deeply, or is not Unicode",
}


def require_bounded(schema: Json) -> bytes:
    """The schema as text; raises `Broken` if it exceeds the limits in size or nesting."""
    level: list[Json] = [schema]
    for _ in range(SCHEMA_LEVELS):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            text = json.dumps(schema).encode()
            if len(text) <= SCHEMA_BYTES:
                return text
            break
    raise Broken(f"one of its schemas has more than {SCHEMA_BYTES} bytes or {SCHEMA_LEVELS} levels")


def _inside(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


class OutputSchemas:
    """The comparing processes of one runtime, started on demand."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._idle: list[_Process] = []
        self._closed = False

    def require_kept(
        self, schema: bytes, structure: Json, deadline: float, cancel: Cancel | None
    ) -> None:
        """Raise `NoAnswer` unless `structure` matches `schema`."""
        try:
            text = json.dumps(structure, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            raise Broken(_SAID[process.NO_VALUE]) from error
        with self._guard:
            one = self._idle.pop() if self._idle else None
        one = one or _Process()
        try:
            word = one.compare(schema, text, deadline, cancel)
        except BaseException:
            one.end()
            raise
        self._put_back(one)
        if word != process.FITS:
            raise Broken(_SAID[word])

    def _put_back(self, one: _Process) -> None:
        with self._guard:
            if not self._closed and len(self._idle) < _IDLE:
                self._idle.append(one)
                return
        one.end()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for one in idle:
            one.end()


class _Process:
    def __init__(self) -> None:
        library = find_spec("jsonschema_rs")
        if library is None or library.origin is None:
            raise Fault("jsonschema-rs is not installed.", remedy="Install Actum anew.")
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        self._greeted = False
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", process.__file__, str(Path(library.origin).parents[1])],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,  # the host handles Ctrl-C
        )
        theirs.close()

    def compare(
        self, schema: bytes, structure: bytes, deadline: float, cancel: Cancel | None
    ) -> bytes:
        if not self._greeted:
            if self._word(deadline, cancel) != process.READY:
                raise Fault(
                    "The process that compares answers of MCP servers does not start.",
                    remedy="Install Actum anew.",
                )
            self._greeted = True
        header = process.HEADER.pack(len(schema), len(structure))
        try:
            self._send(header + schema + structure, deadline, cancel)
            word = self._word(deadline, cancel)
        except (BrokenPipeError, ConnectionResetError):
            word = b""
        if word:
            return word
        if self._process.wait() == -signal.SIGPROF:
            raise Broken(
                f"its answer takes more than {process.CPU_S:g} s to compare with its schema"
            )
        raise Broken("its answer cannot be compared with its schema")

    def _send(self, request: bytes, deadline: float, cancel: Cancel | None) -> None:
        rest = memoryview(request)
        while rest:
            self._wait(select.POLLOUT, deadline, cancel)
            rest = rest[self._line.send(rest) :]

    def _word(self, deadline: float, cancel: Cancel | None) -> bytes:
        """One byte; none if the process has ended."""
        self._wait(select.POLLIN, deadline, cancel)
        return self._line.recv(1)

    def _wait(self, event: int, deadline: float, cancel: Cancel | None) -> None:
        poll = select.poll()
        poll.register(self._line, event)
        if cancel is not None:
            poll.register(cancel.fileno(), select.POLLIN)
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if cancel is not None and cancel.requested:
            raise Stopped
        if self._line.fileno() not in ready:
            raise Late

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._line.close()
