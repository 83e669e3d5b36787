"""Closes executions whose process is gone, with a receipt that says so."""

from __future__ import annotations

from actum.errors import EvidenceUnavailable
from actum.evidence.executions import Executions
from actum.evidence.ledger import Ledger


def close_lost(executions: Executions, ledger: Ledger) -> None:
    """Close every PENDING record of a process that is gone."""
    for execution in executions.open_executions():
        if execution.alive:
            continue
        try:
            ledger.close_interrupted(execution.execution_id)
        except EvidenceUnavailable:
            # Several processes may start after one crash, and each of them finds the same record.
            known = executions.get(execution.execution_id)
            if known is None or known.outcome is None:
                raise
