"""JSON-RPC over a channel, as the transport of the MCP library's session.

The library negotiates versions and reads results. This module sends its messages and trusts no
reply: every line is bounded, must be one well-formed message and may answer only an open request.
Unsolicited messages are counted. Requests of the server are declined. All of it runs in the calling
thread: there is no event loop, and lines are read only while a caller waits.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from actum.contract.model import Json
from actum.runners.base import Cancel, Channel
from actum.value import value

#: Notifications, requests and stray lines that a server may send during one call.
UNASKED = 10_000
_NOT_FOUND, _TIMED_OUT = -32601, -32001
_SHOWN = 200

T = TypeVar("T")


class NoAnswer(Exception):
    """The server did not answer; the subclass says why."""


class Late(NoAnswer):
    """The deadline of the call passed."""


class Stopped(NoAnswer):
    """The caller cancelled the call."""


class Gone(NoAnswer):
    """The server has ended."""


class Flooded(NoAnswer):
    """The server sent too many unsolicited messages."""


class Broken(NoAnswer):
    """The server broke the protocol."""


@value
class Answered:
    """An answer that is expected again, byte for byte except for its request id."""

    result: dict[str, Any]
    before: bytes | None  #: the line up to the id; None: the id cannot be located
    after: bytes

    def is_again(self, line: bytes, request_id: int) -> bool:
        return self.before is not None and line == b"%b%d%b" % (self.before, request_id, self.after)


class Question:
    """A request that can be sent more than once, each time with another id."""

    __slots__ = ("_after", "headers", "params")

    def __init__(
        self, method: str, params: Mapping[str, Json] | None, headers: Mapping[str, str]
    ) -> None:
        self.params = params
        self.headers = headers
        rest: dict[str, Json] = {"method": method}
        if params:
            rest["params"] = dict(params)
        self._after = _encode(rest)[1:]

    def numbered(self, request_id: int) -> str:
        return f'{{"jsonrpc":"2.0","id":{request_id},{self._after}'


class Conversation:
    """A dispatcher in the library's terms. One request at a time."""

    def __init__(self, channel: Channel, *, enveloped: bool) -> None:
        self._channel = channel
        self._enveloped = enveloped  #: messages include headers, which a driver sends
        self._last_id = 0
        self._abandoned: set[str] = set()
        self._unasked = 0
        self._asked: dict[str, Question] = {}
        self._given: dict[str, Any] | None = None
        self._last: tuple[bytes, dict[str, Any]] = b"", {}  #: line and result, as received
        self.deadline = 0.0
        self.cancel: Cancel | None = None

    def begin(self, deadline: float, cancel: Cancel | None) -> None:
        """Start a new call, with its own deadline and its own count of unsolicited messages."""
        self.deadline, self.cancel = deadline, cancel
        self._unasked = 0

    # -- the library's side ---------------------------------------------------------------

    async def send_raw_request(
        self, method: str, params: Mapping[str, Json] | None, opts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        if self._given is not None:
            given, self._given = self._given, None
            return given
        opts = opts or {}
        headers = dict(opts.get("headers") or {})
        question = self._asked[method] = Question(method, params, headers)
        request_id = self._request(question)
        until = self.deadline
        if "timeout" in opts:
            # A server may not answer an unknown method: leave time for another request.
            left = max(0.0, self.deadline - time.monotonic())
            until = self.deadline - left + min(float(opts["timeout"]), left / 2)
        return self._answer(request_id, until)

    async def notify(
        self, method: str, params: Mapping[str, Json] | None, opts: Mapping[str, Any] | None = None
    ) -> None:
        message: dict[str, Json] = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = dict(params)
        self._send(message, dict((opts or {}).get("headers") or {}))

    async def run(self, *_handlers: object, **_status: object) -> None:
        raise AssertionError("the session is used without being entered: nothing runs beside it")

    # -- without the library --------------------------------------------------------------

    def asked(self, method: str) -> Mapping[str, Json]:
        """The parameters of the library's last request of this method."""
        return self._asked[method].params or {}

    def ask(self, question: Question) -> dict[str, Any]:
        return self._answer(self._request(question), self.deadline)

    def hand_over(self, result: dict[str, Any]) -> None:
        """Answer the library's next request with `result`, without sending it."""
        self._given = result

    def ask_again(self, method: str) -> int:
        """Send the last request of this method again; `answer` waits for its answer."""
        return self._request(self._asked[method])

    def answer(self, request_id: int, known: Answered) -> dict[str, Any]:
        """`known.result` itself if the same line came again; that line is not parsed."""
        return self._answer(request_id, self.deadline, known)

    def last(self) -> Answered:
        """The last answer, to recognise a repetition."""
        line, result = self._last
        found = _ID.search(line)
        if found is not None:
            before, after = line[: found.start(1)], line[found.end(1) :]
            # Only if this is the id of the message, and not a number in its content.
            if _decode((before + b"0" + after).decode()) == {**_decode(line.decode()), "id": 0}:
                return Answered(result=result, before=before, after=after)
        return Answered(result=result, before=None, after=b"")

    # -- the wire -------------------------------------------------------------------------

    def _request(self, question: Question) -> int:
        self._last_id += 1
        self._send_text(question.numbered(self._last_id), question.headers)
        return self._last_id

    def _send(self, message: Json, headers: Mapping[str, str]) -> None:
        self._send_text(_encode(message), headers)

    def _send_text(self, message: str, headers: Mapping[str, str]) -> None:
        if self._enveloped:
            message = f'{{"headers":{_encode(dict(headers))},"message":{message}}}'
        if not self._channel.send(message.encode(), self.deadline):
            raise Gone(self._channel.over) if self._channel.over else Late

    def _answer(
        self, request_id: int, until: float, known: Answered | None = None
    ) -> dict[str, Any]:
        while True:
            line = self._line(until)
            if line is None:
                if until < self.deadline:
                    self._abandoned.add(str(request_id))
                    raise _error(_TIMED_OUT, "no answer came in time", None)
                raise Late
            if known is not None and known.is_again(line, request_id):
                return known.result
            message = _message(line)
            if "method" in message:
                self._unwanted(message)
                continue
            answered = str(message.get("id"))
            if answered == str(request_id):
                result = _result(message)
                self._last = line, dict(result)  # the library modifies its argument
                return result
            if answered in self._abandoned:
                self._abandoned.discard(answered)
                continue
            raise Broken("it answered a request that was not sent")

    def _unwanted(self, message: Mapping[str, Json]) -> None:
        self._unasked += 1
        if self._unasked > UNASKED:
            raise Flooded
        request_id = message.get("id")
        if isinstance(request_id, (str, int)):
            refusal = {"code": _NOT_FOUND, "message": "This client takes no requests."}
            self._send({"jsonrpc": "2.0", "id": request_id, "error": refusal}, {})

    def _line(self, until: float) -> bytes | None:
        channel, cancel = self._channel, self.cancel
        stop = -1 if cancel is None else cancel.fileno()
        while True:
            if cancel is not None and cancel.requested:
                raise Stopped
            line = channel.receive(until, stop)
            if line and not line.isspace():
                return line
            if channel.over:
                raise Gone(channel.over)
            if time.monotonic() >= until:
                return None


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only `Conversation`, whose methods block."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("the library awaited something other than its dispatcher")


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = _decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise Broken("it sent something that is not JSON") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Broken("it sent something that is not a JSON-RPC 2.0 message")
    return message


def _result(message: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in message:
        error = message["error"]
        if not isinstance(error, dict) or type(error.get("code")) is not int:
            raise Broken("it sent a malformed error")
        raise _error(error["code"], str(error.get("message", ""))[:_SHOWN], error.get("data"))
    result = message.get("result")
    if not isinstance(result, dict):
        raise Broken("it sent an answer without a result")
    return result


def _error(code: int, text: str, data: Json) -> Exception:
    from mcp import MCPError

    return MCPError(code, text, data)


def _no_number(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


_ID = re.compile(rb'"id" ?: ?([0-9]+)')
_decode = json.JSONDecoder(parse_constant=_no_number).decode
_encode = json.JSONEncoder(separators=(",", ":")).encode
