"""Whatever a server says, a question ends in an answer, an error, or a reason why there is none."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import MCPError

from actum.capture.model import Capture, Connection, Enforced
from actum.mcp.json_rpc import Broken, Conversation, Gone, Late, NoAnswer, drive


class Lines:
    """A channel on which `lines` come, whatever is said."""

    until = 0.0
    ended = False

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._coming = deque(lines)
        self.said: list[dict[str, object]] = []

    @property
    def over(self) -> str:
        return "" if self._coming else "it has ended"

    def enforcement(self, note: str = "") -> tuple[Enforced, ...]:
        return ()

    def refused(self) -> tuple[Connection, ...]:
        return ()

    def redacted(self, content: bytes) -> bytes:
        return content

    def fileno(self) -> int:
        raise AssertionError("nothing to wait for")

    def send(self, message: bytes, deadline: float | None = None) -> bool:
        self.said.append(json.loads(message))
        return True

    def receive(self, deadline: float, stop: int = -1) -> bytes | None:
        return self._coming.popleft() if self._coming else None

    def close(self) -> Capture:
        raise AssertionError("nothing to close")


def ask(*lines: bytes) -> tuple[dict[str, object], Lines]:
    channel = Lines(lines)
    conversation = Conversation(channel, enveloped=False)
    conversation.begin(time.monotonic() + 5, None)
    return drive(conversation.send_raw_request("tools/list", None)), channel


def answer(identity: object, **body: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, **body}).encode()


def test_the_answer_to_the_question_is_the_answer() -> None:
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message"}).encode()
    wish = json.dumps({"jsonrpc": "2.0", "id": "s", "method": "roots/list"}).encode()
    result, channel = ask(b"", note, wish, answer(1, result={"a": 1}))
    assert result == {"a": 1}
    asked, declined = channel.said
    assert asked == {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert declined["id"] == "s"
    assert "error" in declined
    assert ask(answer("1", result={}))[0] == {}, "as a text, as some send it"


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"\xff\xfe",
        b"[1]",
        b"1" * 10_000,
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}',
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        answer(2, result={}),
        answer(None, result={}),
        answer(True, result={}),
        answer([1], result={}),
        answer(1, result=[]),
        answer(1),
        answer(1, error="bad"),
        answer(1, error={"code": "x"}),
    ],
)
def test_what_is_no_answer_breaks_the_protocol(line: bytes) -> None:
    with pytest.raises(Broken):
        ask(line, answer(1, result={}))


def test_an_error_is_the_servers_own() -> None:
    with pytest.raises(MCPError) as caught:
        ask(answer(1, error={"code": -5, "message": "no"}))
    assert caught.value.code == -5


def test_an_end_is_no_answer() -> None:
    with pytest.raises(Gone):
        ask()


def test_a_deadline_that_has_passed_is_late() -> None:
    class Silent(Lines):
        over = ""

    conversation = Conversation(Silent([]), enveloped=False)
    conversation.begin(time.monotonic(), None)
    with pytest.raises(Late):
        drive(conversation.send_raw_request("tools/list", None))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
_NAMES = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code"])
_MESSAGES = st.dictionaries(_NAMES, _JSON | st.just("2.0") | st.just(1) | st.just({"code": 1}))


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=20) | _MESSAGES.map(lambda m: json.dumps(m).encode()), max_size=5)
)
def test_nothing_that_comes_raises_anything_else(lines: list[bytes]) -> None:
    try:
        result, _channel = ask(*lines)
    except (NoAnswer, MCPError):
        return
    assert isinstance(result, dict)
