"""The same execution_id again: the recorded answer, never a second run."""

from __future__ import annotations

from functools import partial

from actum.engine.result import Result, result_from
from actum.errors import Refused
from actum.evidence.executions import KnownExecution
from actum.evidence.receipts import Receipts
from actum.store.session import SessionStore
from actum.value import replace


def answer_again(
    known: KnownExecution, identity_sha256: str, sessions: SessionStore, receipts: Receipts
) -> Result:
    """What was recorded for the same request. Raw output comes back while its session lives."""
    if known.identity_sha256 != identity_sha256:
        raise Refused(
            "EXECUTION_ID_REUSED",
            f"execution_id: {known.execution_id} was used for another request.",
            remedy="Use a new execution_id, or leave it out.",
        )
    if known.outcome is None:
        raise Refused(
            "EXECUTION_RUNNING",
            f"execution_id: {known.execution_id} was started at {known.started_at} and has not"
            " ended.",
            remedy="Wait for it, or use a new execution_id.",
        )
    if known.result is None:
        raise Refused(
            "EXECUTION_INTERRUPTED",
            f"execution_id: {known.execution_id} was interrupted; what it did is not known.",
            remedy="Look at its receipt; use a new execution_id to run it again.",
        )
    stdout, stderr = sessions.get(known.session, known.execution_id) or (b"", b"")
    again = result_from(known.result, stdout, stderr)
    return replace(again, export=partial(receipts.write, receipts.find(again.receipt_id)))
