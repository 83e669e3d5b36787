"""Opens projects as a user would, each in a process of its own, and reports what is wrong there.

    python inspector.py          one path per line on stdin, one JSON document per line on stdout

The modules are imported once; a fork opens the project, so it recovers in a new process.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import actum.runtime  # noqa: F401 -- loaded before the first fork
from actum import Runtime
from actum.evidence.verify.work_findings import read_work_receipt
from actum.workspace.commit import pending_intent
from actum.workspace.space import READY


def inspect(project: Path) -> dict[str, Any]:
    with Runtime.open(project, pool=False) as runtime:
        state = runtime.state_hash()
        rows = runtime.database.rows(
            "SELECT run_id, item_id, state, status, receipt_id, before_hash, after_hash"
            " FROM work_runs ORDER BY rowid"
        )
        wrong = [*_of_rows(runtime, project, rows), *_left(project)]
        wrong += [str(finding) for finding in runtime.verifier.verify_all() if not finding.passed]
        done = [row for row in rows if row[3] == "success"]
        last = runtime.work_items.records.last_success(project)
        if done and (last is None or last[0] != state):
            wrong.append("the newest receipt names another state than the project has")
        if runtime.database.rows("SELECT 1 FROM executions WHERE state != 'FINAL'"):
            wrong.append("an execution was left open")
    return {
        "runs": [{"run_id": row[0], "item_id": row[1], "status": row[3]} for row in rows],
        "state": state,
        "wrong": wrong,
    }


def _of_rows(runtime: Runtime, project: Path, rows: list[Any]) -> list[str]:
    wrong = []
    held = {room.name for room in _rooms_below(project) if (room / READY).exists()}
    for run_id, item_id, state, status, receipt_id, before, after in rows:
        if state != "FINAL" and run_id in held:
            continue  # it waits for its turn until its run is continued
        if state != "FINAL":
            wrong.append(f"the run of {item_id} was left open")
            continue
        if status != "success" and before != after:
            wrong.append(f"the run of {item_id} is a {status} that changed the state")
        path = project / ".actum/receipts/work" / receipt_id / "RECEIPT.json"
        receipt: Any = read_work_receipt(json.loads(path.read_bytes()), runtime.keyring.trusted)
        if receipt["status"] != status:
            wrong.append(f"{item_id} is a {status}, and its receipt file says {receipt['status']}")
    return wrong


def _left(project: Path) -> list[str]:
    """Intents and rooms of every folder that work items have used."""
    wrong = []
    for space in (project / ".actum/work").iterdir():
        if pending_intent(space) is not None:
            wrong.append(f"an intent was left in {space.name}")
        left = [room for room in _rooms(space) if not (room / READY).exists()]
        wrong += [f"a room was left: {space.name}/{each.name}" for each in left]
    return wrong


def _rooms_below(project: Path) -> list[Path]:
    return [room for space in (project / ".actum/work").iterdir() for room in _rooms(space)]


def _rooms(space: Path) -> list[Path]:
    folder = space / "rooms"
    return list(folder.iterdir()) if folder.is_dir() else []


def main() -> None:
    for line in sys.stdin:
        project = Path(json.loads(line))
        child = os.fork()
        if child == 0:
            try:
                answer = inspect(project)
            except BaseException:  # noqa: BLE001 -- reported to the test, which fails
                said = "".join(traceback.format_exc().splitlines(keepends=True)[-6:])
                answer = {"runs": [], "state": "", "wrong": [f"it cannot be opened: {said}"]}
            print(json.dumps(answer), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


main()
