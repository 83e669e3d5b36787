"""After a crash: finish what was decided, close what was left open, remove what lies around."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from actum.engine.work.model import Status
from actum.engine.work.receipt import Before, make_receipt
from actum.engine.work.records import WorkRecords, interrupted, nothing_done
from actum.errors import EvidenceUnavailable
from actum.store.keys import Signer
from actum.workspace.space import Space, spaces

_GONE = "The process that carried it out is gone; nothing of its work was committed."


def recover_work(
    home: Path, records: WorkRecords, signer: Signer, clock: Callable[[], datetime]
) -> None:
    """Needs nobody. A workspace on which somebody runs is left to them."""
    if not (home / "work").is_dir():
        return
    for space in spaces(home):
        with space.held(alone=True, wait=False) as alone:
            if alone:
                space.recover(records.close)
    for run_id, item, agent_sha256, workspace, started_at in records.lost():
        before = Before(
            run_id=run_id,
            item=item,
            agent_sha256=agent_sha256,
            workspace=workspace,
            started_at=datetime.fromisoformat(started_at),
        )
        state = Space(home, workspace).scan().state.hash if workspace.is_dir() else ""
        result = nothing_done(Status.FAILURE, _GONE, state, home)
        facts = interrupted(state, clock())
        receipt = make_receipt(before, facts, result, signer)
        try:
            records.close(records.record(before, facts, result, receipt, None))
        except EvidenceUnavailable:
            # Several processes may come after one crash, and each of them sees the same row.
            found = records.find(run_id)
            if found is None or found.status is None:
                raise
