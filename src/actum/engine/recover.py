"""Executions whose process is gone get the receipt that says so, written by whoever comes next."""

from __future__ import annotations

from actum.errors import EvidenceUnavailable
from actum.evidence.executions import Executions
from actum.evidence.ledger import Ledger


def close_lost(executions: Executions, ledger: Ledger) -> None:
    """Close every PENDING record that nobody can come back to."""
    for execution in executions.open_executions():
        if execution.alive:
            continue
        try:
            ledger.close_interrupted(execution.execution_id)
        except EvidenceUnavailable:
            # Several processes may start after one crash, and each of them sees the same record.
            known = executions.get(execution.execution_id)
            if known is None or known.outcome is None:
                raise
