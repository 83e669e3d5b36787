"""A repeated execution_id: the recorded answer, never a second run."""

from __future__ import annotations

from functools import partial

from actum.contract.model import Contract
from actum.errors import Refused
from actum.execution.artifact import contents_of
from actum.execution.result import Result, result_from
from actum.execution.services import Services
from actum.value import replace


def recorded_answer(contract: Contract, identity_sha256: str, services: Services) -> Result | None:
    """The recorded result of this execution_id; ``None``: nothing of it may have run.

    Raw output comes back while its session lives.
    """
    if not services.ledger.log.has(contract.execution_id):
        return None
    known = services.executions.get(contract.execution_id)
    if known is None or not known.may_have_run:
        return None
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
            remedy="`actum receipts show` has its receipt; use a new execution_id to run it again.",
        )
    stdout, stderr = services.sessions.get(known.session, known.execution_id) or (b"", b"")
    again = result_from(known.result, stdout, stderr, contents_of(services.blobs))
    receipts = services.receipts
    return replace(again, export=partial(receipts.write, receipts.find(again.receipt_id)))
