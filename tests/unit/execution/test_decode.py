"""What is asked and read without the library is what the library asks and reads."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from actum.adapters import mcp as adapter
from actum.capture.model import Capture, Connection, Enforced
from actum.contract.call import Plan
from actum.mcp.client import Answer, Talk
from actum.mcp.decode import decode_result
from actum.mcp.json_rpc import Broken, Gone, NoAnswer
from actum.mcp.output_schema import OutputSchemas

Json = Any
SCHEMA = {"type": "object"}
PROMISE = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "share": {"multipleOf": 0.5}},
    "required": ["n"],
}
SCHEMAS = OutputSchemas()
TOOLS = [
    {"name": "free", "inputSchema": SCHEMA},
    {"name": "promising", "inputSchema": SCHEMA, "outputSchema": PROMISE},
]


class Served:
    """The channel to a server with given answers. Also the `Server` it belongs to."""

    until = 0.0
    ended = False
    redaction = None

    def __init__(self, version: str) -> None:
        self.version = version
        self.said: list[dict[str, Any]] = []
        self.result: Json = None  #: of a call
        self.lines: Callable[[int], list[bytes]] | None = None  #: instead of an answer to a call
        self.listed = lambda number: message(number, result=self._complete({"tools": TOOLS}))
        self._coming: deque[bytes] = deque()

    @property
    def channel(self) -> Served:
        return self

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

    def receive(self, deadline: float, stop: int = -1) -> bytes | None:
        return self._coming.popleft() if self._coming else None

    def close(self) -> Capture:
        raise AssertionError("nothing to close")

    def send(self, line: bytes, deadline: float | None = None) -> bool:
        asked = json.loads(line)
        asked = asked.get("message", asked)  # as it is wrapped for a driver
        self.said.append(asked)
        if "id" in asked and "method" in asked:
            self._coming.extend(self._answers(asked["method"], asked["id"]))
        return True

    def _answers(self, method: str, number: int) -> list[bytes]:
        modern = self.version in MODERN_PROTOCOL_VERSIONS
        if method == "tools/list":
            return [self.listed(number)]
        if method == "tools/call":
            if self.lines is not None:
                return self.lines(number)
            return [message(number, result=self.result)]
        if method == "initialize" and not modern:
            info = {"name": "served", "version": "1"}
            agreed = {"protocolVersion": self.version, "capabilities": {}, "serverInfo": info}
            return [message(number, result=agreed)]
        if method == "server/discover" and modern:
            found = {"supportedVersions": [self.version], "capabilities": {"tools": {}}}
            return [message(number, result=self._complete({"cacheScope": "private", **found}))]
        return [message(number, error={"code": -32601, "message": "Method not found"})]

    def _complete(self, result: dict[str, Json]) -> dict[str, Json]:
        if self.version not in MODERN_PROTOCOL_VERSIONS:
            return result
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}


def message(number: Json, **body: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, **body}).encode()


def plan(tool: str, arguments: Json = None) -> Plan:
    """As far as a talk looks at one: every text of the arguments is an argument of its own."""
    texts = [text for _field, text in adapter._leaves("", arguments or {})]
    asked = SimpleNamespace(
        argv=("server", "tools/call", tool, *texts), stdin=json.dumps(arguments or {}).encode()
    )
    return cast("Plan", asked)


def text(content: str, **more: Json) -> dict[str, Json]:
    return {"content": [{"type": "text", "text": content}], **more}


def greeted(version: str, *, enveloped: bool = False) -> tuple[Talk, Served]:
    """A talk over which no call went yet; `enveloped`: that goes through the library always."""
    served = Served(version)
    talk = Talk(served, SCHEMAS, enveloped=enveloped)  # type: ignore[arg-type]
    talk.begin(time.monotonic() + 60, None)
    talk.negotiate()
    assert talk.tools() is not None
    return talk, served


def warm(version: str = "2025-11-25") -> tuple[Talk, Served]:
    """A talk over which a call went: from now on the library is not needed."""
    talk, served = greeted(version)
    modern = {"resultType": "complete"} if version in MODERN_PROTOCOL_VERSIONS else {}
    served.result = text("x", **modern)
    assert talk.call(plan("free")).error == ""
    return talk, served


@pytest.fixture(autouse=True, scope="module")
def _no_process_stays() -> Iterator[None]:
    yield
    SCHEMAS.close()


@cache
def both(version: str) -> tuple[tuple[Talk, Served], tuple[Talk, Served]]:
    return greeted(version, enveloped=True), warm(version)


def outcome(talk: Talk, tool: str, arguments: dict[str, Json]) -> tuple[str, Json]:
    try:
        answer: Answer = talk.call(plan(tool, arguments))
    except NoAnswer as failure:
        return type(failure).__name__, str(failure)
    return answer.error, json.dumps(answer.document)  # the order of names is part of it


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
ODD = JSON | st.text(st.characters(), max_size=3)  # with halves of surrogates
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("text") | st.just("image") | ODD,
        "text": st.text() | ODD,
        "annotations": ODD,
        "_meta": ODD,
        "data": ODD,
    },
)
RESULTS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.lists(st.builds(lambda t: {"text": t, "type": "text"}, st.text()) | PARTS)
        | ODD,
        "isError": st.booleans() | ODD,
        "structuredContent": st.just({"n": 1})
        | st.dictionaries(st.just("n") | st.text(), ODD)
        | ODD,
        "resultType": st.just("complete") | st.just("input_required") | ODD,
        "_meta": ODD,
        "ttlMs": ODD,
        "other": ODD,
    },
)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(KNOWN_PROTOCOL_VERSIONS), st.sampled_from(["free", "promising"]), RESULTS)
def test_an_answer_is_read_as_the_library_reads_it(version: str, tool: str, result: Json) -> None:
    (first, by_library), (second, directly) = both(version)
    by_library.result = directly.result = result
    assert outcome(second, tool, {}) == outcome(first, tool, {})


@settings(deadline=None)
@given(st.sampled_from(KNOWN_PROTOCOL_VERSIONS), st.dictionaries(st.text(), JSON))
def test_a_question_is_asked_as_the_library_asks_it(version: str, arguments: Json) -> None:
    (first, by_library), (second, directly) = both(version)
    by_library.result = directly.result = text("x")
    outcome(first, "free", arguments)
    outcome(second, "free", arguments)
    asked = [{**served.said[-1], "id": 0} for served in (by_library, directly)]
    assert asked[0] == asked[1]


def test_a_question_that_is_repeated_or_changed_a_little_is_the_one_that_was_meant() -> None:
    talk, served = warm()
    asked = [("free", {"a": "1"}), ("free", {"a": "1"}), ("free", {"a": "2"}), ("free", {"b": "2"})]
    asked += [("promising", {"b": "2"}), ("free", {"a": 1}), ("free", {"a": "1"})]
    for tool, arguments in asked:
        outcome(talk, tool, arguments)
        said = served.said[-1]["params"]
        assert (said["name"], said["arguments"]) == (tool, arguments)
    assert len({said["id"] for said in served.said[-len(asked) :]}) == len(asked)


@pytest.mark.parametrize(
    ("version", "more", "read"),
    [
        ("2025-11-25", {}, True),
        ("2025-11-25", {"isError": True}, True),
        ("2025-11-25", {"isError": 1}, False),
        ("2025-11-25", {"structuredContent": {"n": [1, None, {"t": 0.5}]}}, True),
        ("2025-11-25", {"structuredContent": [1]}, False),
        ("2025-11-25", {"structuredContent": {"n": json.loads("[" * 99 + "]" * 99)}}, False),
        ("2025-11-25", {"structuredContent": {"n": float("inf")}}, False),
        ("2025-11-25", {"structuredContent": {"n": ["\ud800"]}}, False),
        ("2025-11-25", {"structuredContent": {"\ud800": 1}}, False),
        ("2025-11-25", {"resultType": "complete"}, False),
        ("2026-07-28", {"resultType": "complete"}, True),
        ("2026-07-28", {"resultType": "input_required"}, False),
        ("2026-07-28", {}, False),
    ],
)
def test_only_texts_and_structures_are_read_here(
    version: str, more: dict[str, Json], *, read: bool
) -> None:
    found = decode_result(text("x", **more), modern=version in MODERN_PROTOCOL_VERSIONS)
    assert found == (text("x", **more) if read else None)


def test_a_tool_that_promises_structure_is_held_to_it() -> None:
    talk, served = warm()
    served.result = text("x", structuredContent={"n": 1})
    assert talk.call(plan("promising")).document["structuredContent"] == {"n": 1}
    for broken in (text("x"), text("x", structuredContent={"n": "one"})):
        served.result = broken
        with pytest.raises(Broken):
            talk.call(plan("promising"))


@pytest.mark.parametrize(("share", "fits"), [(0.5, True), (10**400, True), (0.3, False)])
def test_a_number_of_any_length_is_held_to_its_schema(share: float, *, fits: bool) -> None:
    talk, served = warm()
    served.result = text("x", structuredContent={"n": 1, "share": share})
    if fits:
        assert not talk.call(plan("promising")).error
    else:
        with pytest.raises(Broken):
            talk.call(plan("promising"))


NOTE = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress"}).encode()
WISH = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create"}).encode()


def test_what_comes_in_between_is_declined_or_passed_over() -> None:
    talk, served = warm()
    served.lines = lambda number: [NOTE, WISH, message(number, result=text("at last"))]
    assert talk.call(plan("free")).document == text("at last")
    assert served.said[-1]["id"] == 7
    assert served.said[-1]["error"]["code"] == -32601


def test_an_error_is_told_and_the_talk_goes_on() -> None:
    talk, served = warm()
    served.lines = lambda number: [message(number, error={"code": -1, "message": "no"})]
    assert talk.call(plan("free")) == Answer(
        {"error": {"code": -1, "message": "no"}}, "the server answered with error -1"
    )
    served.lines = None
    assert talk.call(plan("free")).error == ""


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        (lambda number: [message(number + 1, result=text("x"))], Broken),
        (lambda number: [message(number - 1, result=text("x"))], Broken),
        (lambda _number: [message(None, result=text("x"))], Broken),
        (lambda number: [message(number, result=text("x"))[:-1]], Broken),
        (lambda number: [message(number, result=text("x")) * 2], Broken),
        (lambda _number: [b"[" * 100_000], Broken),
        (lambda _number: [b'\xff{"jsonrpc":"2.0"}'], Broken),
        (lambda _number: [], Gone),
    ],
)
def test_a_server_that_answers_anything_else_broke_the_protocol(
    lines: Callable[[int], list[bytes]], failure: type[NoAnswer]
) -> None:
    talk, served = warm()
    served.lines = lines
    with pytest.raises(failure):
        talk.call(plan("free"))


def test_an_answer_that_comes_twice_is_found_with_the_next_question() -> None:
    talk, served = warm()
    served.lines = lambda number: [message(number, result=text("x"))] * 2
    assert talk.call(plan("free")).document == text("x")
    talk.ask_ahead()
    with pytest.raises(Broken):
        talk.tools()


# -- the list that is asked for ahead ------------------------------------------------------


def listing(number: int, *tools: dict[str, Json]) -> bytes:
    return message(number, result={"tools": [*tools]})


def test_a_list_that_has_not_changed_is_not_told_again() -> None:
    talk, _served = warm()
    for _ in range(3):
        talk.ask_ahead()
        assert talk.tools() is None


def test_a_list_that_has_changed_is_told() -> None:
    talk, served = warm()
    served.listed = lambda number: listing(number, {**TOOLS[0], "description": "Now with more."})
    talk.ask_ahead()
    found = talk.tools()
    assert found is not None
    assert found["free"]["description"] == "Now with more."


def test_the_same_in_another_order_is_the_same() -> None:
    talk, served = warm()
    served.listed = lambda number: json.dumps(
        {"result": {"tools": TOOLS}, "id": number, "jsonrpc": "2.0"}
    ).encode()
    talk.ask_ahead()
    assert talk.tools() is None


def test_a_number_within_the_list_is_not_taken_for_the_number_of_the_answer() -> None:
    """A server could otherwise change that number with every answer, unseen."""

    def listed(inner: int, number: int) -> bytes:
        schema = {"type": "object", "default": {"id": inner}}
        return json.dumps(
            {
                "jsonrpc": "2.0",
                "result": {"tools": [{"name": "free", "inputSchema": schema}]},
                "id": number,
            }
        ).encode()

    served = Served("2025-11-25")
    talk = Talk(served, SCHEMAS, enveloped=False)  # type: ignore[arg-type]
    talk.begin(time.monotonic() + 60, None)
    talk.negotiate()
    served.listed = lambda number: listed(number, number)
    assert talk.tools() is not None
    first = served.said[-1]["id"]
    talk.ask_ahead()
    assert talk.tools() is not None, "its schema has changed"
    # The same letters as before but for the inner number, and an answer to what was asked before.
    served.listed = lambda number: listed(number, first)
    talk.ask_ahead()
    with pytest.raises(Broken):
        talk.tools()


def test_a_notification_before_the_list_is_passed_over() -> None:
    talk, served = warm()
    changed = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}).encode()
    as_before = served.listed
    served._coming.append(changed)
    talk.ask_ahead()
    assert talk.tools() is None
    assert served.listed is as_before
