"""Puts runs of a fleet into its queue: one SQL call, so a submitter needs no engine."""

from __future__ import annotations

from actum.contract.canonical import sha256_bytes
from actum.runs.dispatch.port import Ticket
from actum.runs.ledger.ledger_store import Transaction


def enqueue(into: Transaction, ticket: Ticket) -> None:
    """Implements `port.Enqueue`."""
    into.rows("SELECT enqueue_run(?, ?)", (ticket.run_id, ticket.epoch))


def engine_queue(queue: str, home: str) -> str:
    """As `actum.engine_queue` of the schema names it."""
    return f"{queue}@{sha256_bytes(home.encode())[:12]}"
