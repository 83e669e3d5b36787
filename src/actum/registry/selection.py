"""Which of a tool's adapters serves a task: level 0 first, level 1 only if several match.

The choice is a function of the task and of what is approved, so that equal requests are served
alike. What the requirements do not decide is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from actum.errors import Refused
from actum.registry.kept import Card, ToolCard
from actum.registry.model import AdapterStatus
from actum.value import value

#: Level 1 of adapters, read when it is called.
Summaries = Callable[[], Mapping[str, Mapping[str, Any]]]


@value
class Task:
    """What an adapter must be able to do."""

    operation: str | None = None  #: the command of a cli adapter, or an operation
    parameters: tuple[str, ...] = ()  #: names that a cli adapter must know


def select(tool: ToolCard, task: Task, summaries: Summaries) -> Card:
    """The only adapter, or of several the only active one that serves `task`."""
    if len(tool.adapters) == 1:
        return tool.adapters[0]
    told = summaries() if tool.adapters else {}
    cards = {card.adapter_id: card for card in tool.adapters}
    active = [name for name in cards if told[name]["status"] == AdapterStatus.ACTIVE.value]
    fitting = active
    if len(fitting) > 1 and task.operation is not None:
        fitting = [name for name in fitting if _serves(told[name], task.operation)]
    if len(fitting) > 1:
        fitting = [name for name in fitting if _knows(told[name], task.parameters)]
    if len(fitting) == 1:
        return cards[fitting[0]]
    listed = ", ".join(
        f"{name} ({cards[name].name}, {told[name]['status']})" for name in active or cards
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
    """Operations have parameters of their own, which level 1 does not tell."""
    return "parameters" not in summary or set(parameters) <= set(summary["parameters"])
