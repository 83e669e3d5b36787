"""Pins of MCP servers: the tools of a server must stay those of its first use under an approval.

A model decides by descriptions and schemas, so a server that changes one silently is not the server
that was approved. Name, description and both schemas of every tool are compared, as canonical JSON.
A new approval of the tool starts a new pin.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime

from actum.contract.canonical import canonical, sha256_bytes, sha256_json
from actum.contract.model import Json
from actum.errors import Refused
from actum.evidence.log import Log
from actum.evidence.records.audit import VERSION, Kind
from actum.evidence.records.bound_rows import ROWS, bound_now
from actum.evidence.records.trace import rfc3339
from actum.registry.model import Entry
from actum.store.database import Database

#: name -> description, inputSchema, outputSchema
Tools = Mapping[str, Mapping[str, Json]]
_SHOWN = 120


class ServerPins:
    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log

    def require_same(self, entry: Entry, tools: Tools, now: datetime) -> str:
        """The digest of `tools`; raises `Refused` if they differ from those of the first use."""
        server = entry.adapter.interface["server"]
        pin, text = _pin_sha256(entry), canonical({name: dict(tools[name]) for name in tools})
        digest = sha256_bytes(text)
        query = "SELECT sha256, tools FROM server_tools WHERE pin = ? AND server = ?"
        known = self._database.row(query, (pin, server))
        if known is None:
            self._record((pin, server, digest, text.decode(), rfc3339(now)))
            # Another process may have recorded it first.
            known = self._database.row(query, (pin, server)) or (digest, "{}")
        if known[0] != digest:
            differences = "; ".join(_differences(json.loads(known[1]), tools))
            raise Refused(
                "TOOL_CHANGED",
                f"The MCP server {server} no longer offers what it offered when "
                f"{entry.tool.name} was approved: {differences}.",
                remedy="No tool was called. Review the change and, if it is intended: "
                f"`actum tools approve {entry.tool.tool_id} --by WHO --evidence REF`, with a "
                "reference of its own.",
            )
        return digest

    def _record(self, row: tuple[str, ...]) -> None:
        """Store the tools of a server, with an audit record that binds the row."""
        pin, server, digest, _, at = row
        with contextlib.suppress(_RecordedAlready), self._log.page() as page:
            inserted = page.cursor.execute(
                "INSERT INTO server_tools VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row
            )
            if inserted.rowcount != 1:
                raise _RecordedAlready
            page.append(
                {
                    "v": VERSION,
                    "kind": Kind.SERVER,
                    "ts": at,
                    "pin": pin,
                    "tools_sha256": digest,
                    ROWS: [bound_now(page.cursor, "server_tools", pin, server)],
                }
            )


class _RecordedAlready(Exception):
    """Rolls the transaction back: another process has recorded the same server."""


def _pin_sha256(entry: Entry) -> str:
    """Identifies one approval: approving the same folder again gives another digest."""
    pin = entry.pin
    return sha256_json([pin.tool_id, pin.digest, pin.approver, pin.date, pin.evidence])


def _differences(before: Tools, after: Tools) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"the tool {name!r} is gone"
        elif name not in before:
            yield f"the tool {name[:_SHOWN]!r} is new"
        else:
            for part in ("description", "inputSchema", "outputSchema"):
                old, new = before[name].get(part), after[name].get(part)
                if old != new:
                    yield f"{part} of {name!r} was {_shown(old)} and is {_shown(new)}"


def _shown(value: Json) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
