"""A client of one MCP server: negotiates the version, lists the tools and calls one of them.

The MCP library implements the protocol. This module turns its answers into JSON documents, and its
failures into a `json_rpc.NoAnswer` or an `Answer` with an error. The text of the library's own
errors may hold content of the server, so it is not repeated.

After the library's first call to a pooled stdio server, later calls reuse the form of its request
without the library. `decode` reads answers of texts; the library reads all others. `output_schema`
compares structured content with the schema: the library would apply the server's patterns in this
process, without a time limit.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from actum.adapters import mcp as adapter
from actum.contract.call import Plan
from actum.contract.model import Json
from actum.mcp.decode import decode_result
from actum.mcp.json_rpc import Answered, Broken, Conversation, Question, drive
from actum.mcp.output_schema import OutputSchemas, require_bounded
from actum.mcp.pins import Tools
from actum.runners.base import Cancel
from actum.value import value

if TYPE_CHECKING:
    from mcp import MCPError
    from mcp.client.session import ClientSession

    from actum.execution.kept_tool import Server

_PAGES, _TOOLS, _LISTED_BYTES = 50, 1_000, 8 << 20
_LIST, _CALL = "tools/list", "tools/call"
_OF_ONE_CALL = ("name", "arguments")
_PINNED = {"description", "input_schema", "output_schema"}

T = TypeVar("T")


@cache
def make_ready() -> None:
    """Import the library, which takes a second, before the time of a call begins."""
    import mcp.client.session  # noqa: F401


@value(kw_only=False)
class Answer:
    document: dict[str, Json]
    error: str  #: empty if the tool reports success


class Talk:
    """Usable until `server` is closed. One call at a time."""

    def __init__(self, server: Server, schemas: OutputSchemas, *, enveloped: bool) -> None:
        self.server = server
        self.tools_sha256 = ""  #: of the list that was compared with the pin
        self._line = Conversation(server.channel, enveloped=enveloped)
        self._direct = not enveloped  #: no headers per call
        self._session: ClientSession | None = None
        self._error: type[MCPError]  #: the library's class; set when it is imported
        self._modern = False
        self._listing: Answered | None = None
        self._asked_ahead: int | None = None
        self._schemas = schemas
        self._promised: dict[str, bytes] = {}  #: outputSchema of the tools that have one
        self._always: dict[str, Json] | None = None  #: fields that every call repeats

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
                """Does nothing: `output_schema` validates."""

        self._session = Session(dispatcher=self._line, client_info=info)
        self._asked(negotiate_auto(self._session))
        self._modern = self._session.protocol_version in MODERN_PROTOCOL_VERSIONS

    def tools(self) -> Tools | None:
        """The tools of the server; ``None``: unchanged since the last request."""
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
                promised.pop(tool.name, None)  # of two tools with one name, the last counts
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
                # A list of several pages is always requested again.
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
        """Request the list of tools between calls; `tools` then reads the answer."""
        if self._listing is not None:
            self._asked_ahead = self._line.ask_again(_LIST)

    def call(self, plan: Plan) -> Answer:
        """Call the tool with exactly the arguments that were checked."""
        tool = adapter.tool_of(plan)
        try:
            if self._always is not None:
                result = self._line.ask(self._question(plan, self._always))
                document = decode_result(result, modern=self._modern)
                if document is not None:
                    return self._kept(tool, document)
                self._line.hand_over(result)
            _tool, arguments = adapter.request_of(plan)
            judged = self._asked(self._open.call_tool(tool, arguments), errors=False)
        except self._error as error:
            described = {"code": error.error.code, "message": error.error.message}
            return Answer(
                {"error": described}, f"the server answered with error {error.error.code}"
            )
        if self._direct and self._always is None:
            shown = self._line.asked(_CALL)
            self._always = {name: shown[name] for name in shown if name not in _OF_ONE_CALL}
        document = judged.model_dump(by_alias=True, mode="json", exclude_unset=True)
        document.pop("_meta", None)
        return self._kept(tool, document)

    def _kept(self, tool: str, document: dict[str, Json]) -> Answer:
        """The answer, if it matches the tool's output schema."""
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
            # The answer does not match the library's models, or is nested too deeply to encode.
            # Without the error's text: it holds content of the server.
            raise Broken("its answer is not what the protocol says") from error


def encoded(document: dict[str, Json]) -> bytes:
    return _encode(document).encode(errors="backslashreplace")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
