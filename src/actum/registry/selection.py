"""Selects the adapter of a tool that serves a task: level 0 first, level 1 only if several match.

The choice depends only on the task and the approved adapters, so that equal requests get equal
answers. An undecided choice is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from actum.errors import Refused
from actum.registry.disk_cache import Card, ToolCard
from actum.registry.model import AdapterStatus
from actum.value import value

#: Loads level 1 of the adapters when called.
Summaries = Callable[[], Mapping[str, Mapping[str, Any]]]


@value
class Task:
    """What an adapter must be able to do."""

    operation: str | None = None  #: the command of a cli adapter, or an operation
    parameters: tuple[str, ...] = ()  #: names that a cli adapter must accept


def select(tool: ToolCard, task: Task, summaries: Summaries) -> Card:
    """The only adapter, or of several the only active one that serves `task`."""
    if len(tool.adapters) == 1:
        return tool.adapters[0]
    known = summaries() if tool.adapters else {}
    cards = {card.adapter_id: card for card in tool.adapters}
    active = [name for name in cards if known[name]["status"] == AdapterStatus.ACTIVE.value]
    fitting = active
    if len(fitting) > 1 and task.operation is not None:
        fitting = [name for name in fitting if _serves(known[name], task.operation)]
    if len(fitting) > 1:
        fitting = [name for name in fitting if _knows(known[name], task.parameters)]
    if len(fitting) == 1:
        return cards[fitting[0]]
    listed = ", ".join(
        f"{name} ({cards[name].name}, {known[name]['status']})" for name in active or cards
    )
    count = "several active adapters" if active else "no active adapter"
    raise ambiguous(tool.name, count, listed or "none at all")


def ambiguous(tool: str, count: str, listed: str) -> Refused:
    return Refused(
        "ADAPTER_AMBIGUOUS",
        f"The tool {tool} has {count}: {listed}.",
        remedy="Name one in adapter_id.",
    )


def _serves(summary: Mapping[str, Any], operation: str) -> bool:
    return operation == summary.get("executable") or operation in summary.get("operations", ())


def _knows(summary: Mapping[str, Any], parameters: tuple[str, ...]) -> bool:
    """Operations have their own parameters, which level 1 does not list."""
    return "parameters" not in summary or set(parameters) <= set(summary["parameters"])
