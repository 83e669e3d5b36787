"""The host's end of the tool socket, on which an agent's program calls tools.

Every line comes from inside the sandbox and is untrusted. A malformed line ends the agent, and the
host checks every request. Each message has the item's own deadline, so a program that does not
read its answers blocks the host no longer than its item may take.

Lines from inside:  {"hello": 1} once · {"id", "asks"} · {"ended": exit code}
Lines to it:        the order, once · {"id", "answer"}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from actum.contract.model import Json
from actum.runners.base import Channel
from actum.work.model import Status
from actum.work.tool_access import Ended, ToolAccess


class ToolSocket:
    """Answers one program's requests in the order of their arrival."""

    def __init__(self, channel: Channel, tool_access: ToolAccess) -> None:
        self._channel = channel
        self._hands = tool_access

    def greet(self, order: Mapping[str, Json]) -> bool:
        """Send the relay inside its order; false if the relay never started. It greets only
        once."""
        said = self._heard()
        if said is None:
            return False
        if said != {"hello": 1}:
            raise _nonsense()
        return self._say(order)

    def serve(self, answer: Callable[[Mapping[str, Json]], Json]) -> int | None:
        """Answer until the program has ended: its exit code, or ``None`` if it reported none."""
        while self._hands.ended is None and (said := self._heard()) is not None:
            if set(said) == {"ended"} and type(said["ended"]) is int:
                return said["ended"]
            number, asks = said.get("id"), said.get("asks")
            if len(said) != 2 or type(number) is not int or not isinstance(asks, dict):
                raise _nonsense()
            if not self._say({"id": number, "answer": answer(asks)}):
                return None
        return None

    def _heard(self) -> dict[str, Any] | None:
        line = self._channel.receive(self._hands.deadline)
        if line is None:
            return None
        try:
            said = json.loads(line, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise _nonsense() from error
        if not isinstance(said, dict):
            raise _nonsense()
        return said

    def _say(self, document: Mapping[str, Json]) -> bool:
        return self._channel.send(json.dumps(document).encode(), self._hands.deadline)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _nonsense() -> Ended:
    return Ended(Status.FAILURE, "The agent sent the host a malformed message.")
