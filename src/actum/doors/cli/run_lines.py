"""Events of a run as lines for people. Names and reasons are escaped when they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MARKS = {"success": "✅", "failure": "❌", "denied": "⛔", "timeout": "⏱", "interrupted": "✋"}
_MOST_NAMES = 12  #: of the items of a level
_ID = 8  #: characters of a run's id that a command takes


def line_of(event: Mapping[str, Any]) -> str | None:
    """One line for an event; ``None`` for one that only a live display shows."""
    name = event.get("item") or ""
    match event["at"]:
        case "level":
            return f"level {event['level']}: {_listed(event['items'])}"
        case "called":
            return f"  {name}: {event['tool']} {event['outcome']} after {event['elapsed_ms']} ms"
        case "conflict":
            return f"  {name}: {event['why']} Retrying on the current state."
        case "blocked":
            waits = ", ".join(f"{each} ({end})" for each, end in event["waits_for"].items())
            return f"⏸ {name} blocked: waits for {waits}"
        case "ended":
            return _ended(event, name)
        case "planning":
            return f"{event['agent']} plans"
        case "planned":
            return f"plan: {event['status']}"
        case "validated":
            of = f" {name}" if name else ""
            return f"{event['kind']} validation{of}: {event['status']}"
        case "continuing":
            return (
                f"Continuing run {event['run'][:_ID]} ({event['was']}): {event['committed']} of"
                f" {event['of']} work items are committed. --new starts over."
            )
        case "not-continued":
            undone = ", ".join(event["undone"][:5])
            return (
                f"Run {event['run'][:_ID]} is not continued: {undone} was undone since. This is a"
                " new run."
            )
        case "waiting":
            return f"Waits for run {event['for'][:_ID]}, which is at work in this folder."
        case "fenced":
            return f"run {event['run']} was taken over by another worker"
        case "given-up":
            return f"run {event['run']} goes back to the queue: its ledger does not answer"
    return None


def _ended(event: Mapping[str, Any], name: str) -> str:
    reason = f": {event['reason']}" if event["reason"] else ""
    receipt = f" · receipt {event['receipt_id']}" if event["receipt_id"] else ""
    return (
        f"{MARKS.get(event['status'], '❌')} {name} {event['status']} · {event['files']} file(s) ·"
        f" {event['elapsed_ms']} ms{receipt}{reason}"
    )


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{len(names)} items: {', '.join(names[:_MOST_NAMES])}, …"
