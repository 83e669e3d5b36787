"""Opens a project after a crash, as anyone would, and says what is wrong. One JSON line.

python work_inspect.py PROJECT HASH_BEFORE HASH_AFTER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from actum import Runtime
from actum.evidence.verify.work_findings import read_work_receipt
from actum.workspace.commit import pending_intent


def inconsistencies(rt: Runtime, project: Path, state: str, before: str, after: str) -> list[str]:
    found = []
    rows = rt.database.rows("SELECT state, status, receipt_id, after_hash FROM work_runs")
    if state not in (before, after):
        found.append("the state is neither before nor after")
    for opened, status, receipt_id, told in rows:
        if opened != "FINAL":
            found.append("a run was left open")
            continue
        if (status == "success") != (state == after):
            found.append(f"{status}, and the state says otherwise")
        if told != state:
            found.append("the receipt names another state")
        path = project / ".actum/receipts/work" / receipt_id / "RECEIPT.json"
        read_work_receipt(json.loads(path.read_bytes()), rt.keyring.trusted)
    if state == after and not rows:
        found.append("a state nobody answers for")
    for space in (project / ".actum/work").iterdir():
        if pending_intent(space) is not None:
            found.append("an intent was left")
        found += [f"left: {room.name}" for room in (space / "rooms").iterdir()]
    found += [str(finding) for finding in rt.verifier.verify_all() if not finding.passed]
    if str(project / "") in Path("/proc/self/mountinfo").read_text():
        found.append("a mount was left")
    return found


def main() -> None:
    project, before, after = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    with Runtime.open(project, pool=False) as rt:
        state = rt.state_hash()
        wrong = inconsistencies(rt, project, state, before, after)
    print(json.dumps({"state": state, "wrong": wrong}))


main()
