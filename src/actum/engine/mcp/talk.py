"""A server that is spoken with: version agreed on, tools listed, one of them called.

The MCP library does the protocol; its answers are turned into plain documents here, and what goes
wrong into one of the ways of `conversation.NoAnswer` or an `Answer` that is an error. The text of
the library's own complaints may hold what the server sent and is not repeated.

A kept server on stdio is asked without the library once that has shown how it asks, and an answer
of texts is read without it (`plain`); any other answer it is handed to judge. Whether a structure
is the promised one is judged by `output_schema`: the library would apply patterns of the server in
this process, for as long as they take.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from actum.adapters import mcp as adapter
from actum.contract.call import Plan
from actum.contract.model import Json
from actum.engine.mcp.conversation import Answered, Broken, Conversation, Question, drive
from actum.engine.mcp.output_schema import OutputSchemas, require_bounded
from actum.engine.mcp.pins import Tools
from actum.engine.mcp.plain import read_plainly
from actum.engine.server import Server
from actum.runners.base import Cancel
from actum.value import value

if TYPE_CHECKING:
    from mcp import MCPError
    from mcp.client.session import ClientSession

_PAGES, _TOOLS, _LISTED_BYTES = 50, 1_000, 8 << 20
_LIST, _CALL = "tools/list", "tools/call"
_OF_ONE_CALL = ("name", "arguments")
_PINNED = {"description", "input_schema", "output_schema"}

T = TypeVar("T")


@cache
def make_ready() -> None:
    """The library takes a second to import, once: before a call's time begins, not within it."""
    import mcp.client.session  # noqa: F401


@value(kw_only=False)
class Answer:
    document: dict[str, Json]
    error: str  #: empty if the tool says that it succeeded


class Talk:
    """Until someone closes `server`. One call at a time."""

    def __init__(self, server: Server, schemas: OutputSchemas, *, enveloped: bool) -> None:
        self.server = server
        self.tools_sha256 = ""  #: of what was compared with the pin
        self._line = Conversation(server.channel, enveloped=enveloped)
        self._direct = not enveloped  #: no headers to be made for each call
        self._session: ClientSession | None = None
        self._error: type[MCPError]  #: of the library; known once it is spoken with
        self._modern = False
        self._listing: Answered | None = None
        self._asked_ahead: int | None = None
        self._schemas = schemas
        self._promised: dict[str, bytes] = {}  #: outputSchema of the tools that have one
        self._always: dict[str, Json] | None = None  #: what every call says, once one was made

    def begin(self, deadline: float, cancel: Cancel | None) -> None:
        self._line.begin(deadline, cancel)

    def negotiate(self) -> None:
        from mcp import MCPError, types
        from mcp.client._probe import negotiate_auto
        from mcp.client.session import ClientSession
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        from actum import __version__

        self._error = MCPError
        info = types.Implementation(name="actum", version=__version__)

        class Session(ClientSession):
            async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
                """Not here: see `output_schema`."""

        self._session = Session(dispatcher=self._line, client_info=info)
        self._asked(negotiate_auto(self._session))
        self._modern = self._session.protocol_version in MODERN_PROTOCOL_VERSIONS

    def tools(self) -> Tools | None:
        """What it offers; ``None``: the same as when it was last asked."""
        if self._asked_ahead is not None and self._listing is not None:
            request_id, self._asked_ahead = self._asked_ahead, None
            if self._line.answer(request_id, self._listing) == self._listing.result:
                return None
        from mcp import types

        found: dict[str, dict[str, Json]] = {}
        promised: dict[str, bytes] = {}
        params, listed_bytes = None, 0
        for page in range(_PAGES):
            listed = self._asked(self._open.list_tools(params=params))
            if page == 0:
                whole = listed.next_cursor is None
            for tool in listed.tools:
                listed_bytes += len(require_bounded(tool.input_schema))
                listed_bytes += len(tool.description or "")
                promised.pop(tool.name, None)  # a name that is listed twice means the last
                if tool.output_schema is not None:
                    promised[tool.name] = require_bounded(tool.output_schema)
                    listed_bytes += len(promised[tool.name])
                document = tool.model_dump(
                    by_alias=True, mode="json", exclude_none=True, include=_PINNED
                )
                found[tool.name] = {
                    part: document.get(part)
                    for part in ("description", "inputSchema", "outputSchema")
                }
            if listed.next_cursor is None:
                # A list of several pages is always asked for anew.
                self._listing = self._line.last() if whole else None
                self._promised = promised
                return found
            if len(found) > _TOOLS or listed_bytes > _LISTED_BYTES:
                break
            params = types.PaginatedRequestParams(cursor=listed.next_cursor)
        raise Broken(
            f"it lists more than {_TOOLS} tools, {_PAGES} pages of them or {_LISTED_BYTES} bytes"
        )

    def ask_ahead(self) -> None:
        """Have it list its tools while nobody waits; `tools` then finds the answer."""
        if self._listing is not None:
            self._asked_ahead = self._line.ask_again(_LIST)

    def call(self, plan: Plan) -> Answer:
        """What the plan asks for, in the words that were judged."""
        tool = adapter.tool_of(plan)
        try:
            if self._always is not None:
                result = self._line.ask(self._question(plan, self._always))
                document = read_plainly(result, modern=self._modern)
                if document is not None:
                    return self._kept(tool, document)
                self._line.hand_over(result)
            _tool, arguments = adapter.request_of(plan)
            judged = self._asked(self._open.call_tool(tool, arguments), errors=False)
        except self._error as error:
            told = {"code": error.error.code, "message": error.error.message}
            return Answer({"error": told}, f"the server answered with error {error.error.code}")
        if self._direct and self._always is None:
            shown = self._line.asked(_CALL)
            self._always = {name: shown[name] for name in shown if name not in _OF_ONE_CALL}
        document = judged.model_dump(by_alias=True, mode="json", exclude_unset=True)
        document.pop("_meta", None)
        return self._kept(tool, document)

    def _kept(self, tool: str, document: dict[str, Json]) -> Answer:
        """The answer, if it is what the server promised of this tool's answers."""
        if document.get("isError"):
            return Answer(document, "the tool answered with an error")
        schema = self._promised.get(tool)
        if schema is not None:
            if "structuredContent" not in document:
                raise Broken("its answer lacks the structure that its own schema promises")
            structure, line = document["structuredContent"], self._line
            self._schemas.require_kept(schema, structure, line.deadline, line.cancel)
        return Answer(document, "")

    def _question(self, plan: Plan, always: dict[str, Json]) -> Question:
        tool, arguments = adapter.request_of(plan)
        return Question(_CALL, {**always, "name": tool, "arguments": arguments}, {})

    @property
    def _open(self) -> ClientSession:
        if self._session is None:
            raise AssertionError("negotiate first")
        return self._session

    def _asked(self, question: Coroutine[Any, Any, T], *, errors: bool = True) -> T:
        from mcp import MCPError

        try:
            return drive(question)
        except MCPError as error:
            if not errors:
                raise
            raise Broken(f"it answered with error {error.error.code}") from error
        except (ValueError, RuntimeError) as error:
            # Its models do not fit, or an answer is deeper than they can be written down.
            # Not its text: that holds what the server sent.
            raise Broken("its answer is not what the protocol says") from error


def encoded(document: dict[str, Json]) -> bytes:
    return _encode(document).encode(errors="backslashreplace")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
