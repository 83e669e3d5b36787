"""A home that holds every kind of record, made by the product: what the tamper table changes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from actum import Outcome, Result, Runtime
from actum.contract.model import RunnerKind
from actum.contract.request import ExecRequest
from actum.errors import ContractInvalid
from actum.evidence.log import Log
from actum.evidence.records.audit import Decision
from actum.evidence.rotation import rotate
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.settings import load
from actum.store.blobs import SMALL_BYTES
from actum.store.database import Database
from actum.store.keys import Keyring
from actum.work.model import RunResult

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "security"))
from mcp_servers.project import adapter, tool, write

SESSION = "kept"
_ELEVATED = {"sandbox.filesystem.level": "elevated", "sandbox.filesystem.read": [".", "/etc"]}
_D2 = {"determinism": "D2", "sandbox.filesystem.write": []}

#: Processes that die on the way. Each leaves one thing open; nothing closes it afterwards.
_DYING = """
import os, sys
from pathlib import Path
from actum import Runtime
from actum.work.model import WorkItem
from actum.work.work_receipt import Before
from actum.evidence.ledger import Ledger
from actum.executors.action_records import Journal

what, root = sys.argv[1], Path(sys.argv[2])
die = lambda *words, **more: os._exit(9)
Ledger.seal = Journal.close = die
Runtime.sweep = lambda self: None  # what the one before left stays open
rt = Runtime.open(root, pool=False)
if what == "execution":
    rt.exec("shell", stdin="true", cwd=root)
elif what == "action":
    rt.act({"action": "process", "payload": {"text": "x"}})
else:
    item = WorkItem(id="open", agent_id="agent-1", description="Never ended")
    before = Before(run_id=rt.services.session, item=item, agent_sha256="0" * 64, workspace=root,
                    started_at=rt.services.clock())
    rt.work_items.records.open(before, rt.state_hash())
    os._exit(9)
"""


def make_home(root: Path) -> Path:
    """A project at `root`; its home. Every table has at least two rows."""
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    _let_shell_ask_for_more(root)
    _add_server(root)
    (root / "edit.txt").write_text("1\n")
    (root / "gone.txt").write_text("to be removed\n")
    (root / "link").symlink_to("edit.txt")
    (root / "executors").mkdir()
    settings = load(root / ".actum", {"LOGNAME": "asker"})
    with Runtime(settings, session=SESSION, pool=False) as rt:
        _executions(rt)
        _transactions(rt)
        _approvals(rt)
        _standing_approvals(rt)
        _servers(rt)
        _pure_plane(rt)
        _works(rt)
        _runs(rt)
        rotate(
            rt.services.ledger,
            root=root,
            home=settings.home,
            approving=rt.keyring.approving,
            at=rt.services.clock(),
        )
    with Runtime(settings, session=SESSION, pool=False) as rt:
        _succeed(_shell(rt, "echo after the rotation"))
        for kept in rt.services.receipts.latest(2):
            rt.services.receipts.export(kept.receipt_id)
    for what in ("execution", "execution", "action", "action", "work", "work"):
        ended = subprocess.run([sys.executable, "-c", _DYING, what, str(root)], check=False)
        assert ended.returncode == 9, what
    _write_out(settings.home)
    return settings.home


def _runs(rt: Runtime) -> None:
    """One that is complete, one that is cancelled, one that is queued; two decisions."""
    item = {"id": "late", "agent_id": "agent-1", "description": "A step of a run"}
    source = yaml.safe_dump({"items": [item, {**item, "id": "later", "dependencies": ["late"]}]})
    first = rt.runs.submit(source, config={"maxFilesPerStep": 1}, environ={})
    rt.runs.worker().drain()
    rt.runs.gate(first.run_id)
    assert rt.runs.get(first.run_id).status.value == "complete"
    rt.runs.cancel(rt.runs.submit(source, environ={}).run_id)
    queued = rt.runs.submit(source, environ={})
    rt.runs.gate(queued.run_id)


def _write_out(home: Path) -> None:
    database = Database.open(home)
    Log(database, Keyring.open(home).signer)
    database.write_out()
    database.close()


def _let_shell_ask_for_more(root: Path) -> None:
    file = root / "tools/shell/tool.yaml"
    document = yaml.safe_load(file.read_text())
    paths = [".", "/etc", str(root.parent / "out")]
    document["scope"] |= {"filesystem": [*paths], "network": "off"}  # YAML 1.1: a boolean
    document["permissions"]["filesystem"] = {"read": [*paths], "write": [*paths]}  # no YAML alias
    file.write_text(yaml.safe_dump(document))
    keyring = Keyring.open(root / ".actum")
    approve(root, keyring, "shell", by="user:maker", evidence="test", date="2026-11-15")


def _add_server(root: Path) -> None:
    command = ["python3", "-I", "-S", "{tool}/server.py", "well"]
    write(root, tool(servers={"small-server": {"command": command}}), adapter())


def _shell(rt: Runtime, script: str, **more: Any) -> Result:
    return rt.exec("shell", stdin=script, cwd=rt.settings.root, **more)


def _succeed(result: Result) -> Result:
    assert result.outcome is Outcome.SUCCEEDED, result
    return result


def _executions(rt: Runtime) -> None:
    """Ran, failed, refused, malformed, asked twice, answered from the cache; with files."""
    _succeed(_shell(rt, "echo said; echo oops >&2; echo made > $ACTUM_ARTIFACTS/made.txt"))
    large = f"head -c {SMALL_BYTES + 1} /dev/zero > $ACTUM_ARTIFACTS/large.bin"
    _succeed(_shell(rt, f"{large}; echo other > $ACTUM_ARTIFACTS/other.txt"))
    assert _shell(rt, "exit 3").outcome is Outcome.TOOL_ERROR
    assert rt.exec("shell", stdin="true", cwd="/").outcome is not Outcome.SUCCEEDED
    with contextlib.suppress(ContractInvalid):
        rt.execute({"tool_id": 5})
    contract = rt.contract(
        {
            "tool_id": "TL-010",
            "inputs": {
                "command": "sh",
                "stdin": "echo once",
                "working_directory": str(rt.settings.root),
            },
        }
    )
    first, again = _succeed(rt.execute(contract)), _succeed(rt.execute(contract))
    assert first.receipt_id == again.receipt_id
    deadline = time.monotonic() + 60
    while not _succeed(_shell(rt, "cat edit.txt", set=_D2)).cached:
        # Nothing is answered from the cache while a readable file is newer than its clock's tick.
        assert time.monotonic() < deadline
        time.sleep(0.1)
    words = {"stdin": "echo expected", "set": _D2, "cwd": str(rt.settings.root)}
    _, golden = rt.record_golden(
        rt.draft(ExecRequest(tool="shell", **words)), by="user:boss", why="so"
    )
    assert golden


def _transactions(rt: Runtime) -> None:
    """Committed, undone, approved, denied, held for an approval, and held by wish."""
    root = rt.settings.root
    (root / "first").write_text("1\n")
    (root / "second").write_text("2\n")

    def changed(script: str, state: str, **more: Any) -> Result:
        result = _succeed(_shell(rt, script, **more))
        assert result.workspace is not None
        assert result.workspace.state == state, result.workspace
        return result

    changed("echo 2 >> first; rm second; mkdir d; echo n > d/n; ln -s first to-first", "committed")
    undone = changed("echo undone > undone", "committed")
    rt.transactions.undo(rt.transactions.find(undone.execution_id))
    for decision, state in ((Decision.ALLOW, "committed"), (Decision.DENY, "discarded")):
        held = changed(f"mkdir -p rules; echo {decision} > rules/{decision}", "held")
        assert held.workspace is not None
        request = rt.approvals.decide(
            held.workspace.request_id, decision, by="user:boss", why="looked at"
        )
        assert rt.transactions.approved(request) == state
    changed("echo '# more' >> actum.toml", "held")
    changed("echo x > wished", "held", changes="hold")


def _approvals(rt: Runtime) -> None:
    """Used, approved and not used, denied, not decided, and two escalations."""
    decisions = {"used": Decision.ALLOW, "unused": Decision.ALLOW, "denied": Decision.DENY}
    for what in (*decisions, "pending"):
        asked = _shell(rt, f"true {what}", set=_ELEVATED, purpose=what)
        assert asked.reason_codes == ("APPROVAL_REQUIRED",), asked
        for violation in asked.violations:
            if what in decisions:
                rt.approvals.decide(violation.value, decisions[what], by="user:boss", why=what)
    _succeed(_shell(rt, "true used", set=_ELEVATED, purpose="used"))
    for _ in range(2):
        assert _shell(rt, "exit 126").outcome is Outcome.PERMISSION_DENIED


def _standing_approvals(rt: Runtime) -> None:
    """Unused, used, used up, revoked."""
    out = rt.settings.root.parent / "out"
    out.mkdir()
    words = {"paths": [out], "by": "user:boss", "why": "so"}
    writing = {
        "sandbox.filesystem.level": "elevated",
        "sandbox.filesystem.read": ["."],
        "sandbox.filesystem.write": [str(out)],
    }
    grant = rt.standing_approvals.grant
    grant("shell", uses=1, **words)
    _succeed(_shell(rt, "true", set=writing))  # used up
    grant("shell", uses=3, until=timedelta(days=1), **words)
    _succeed(_shell(rt, "true", set=writing))
    revoked = grant("shell", until=timedelta(days=1), **words)
    rt.standing_approvals.revoke(revoked.approval_id, by="user:boss", why="no more")
    grant("shell", until=timedelta(days=1), **words)


def _servers(rt: Runtime) -> None:
    """One server, used under two approvals."""
    for evidence in ("first", "second"):
        servers = {"small-server": {"command": ["python3", "-I", "-S", "{tool}/server.py", "well"]}}
        write(rt.settings.root, tool(servers=servers), evidence=evidence)
        _succeed(rt.exec("small:echo", cwd=rt.settings.root, parameters={"text": evidence}))


def _pure_plane(rt: Runtime) -> None:
    done = rt.act({"action": "process", "payload": {"text": "x"}})
    assert done.status.value == "SUCCESS", done
    (rt.settings.root / "executors/impure.py").write_text(
        '"""Opens a file."""\nopen("/etc/passwd")\n'
    )
    assert not rt.executors.review(
        rt.settings.root / "executors/impure.py", by="user:boss"
    ).approved


def _agent(root: Path, number: int, *scripts: str) -> None:
    folder = root / "agents"
    folder.mkdir(exist_ok=True)
    steps = [{"tool": "shell", "stdin": script} for script in scripts]
    document = {"agent_id": f"agent-{number}", "steps": steps}
    (folder / f"agent-{number}.yaml").write_text(yaml.safe_dump(document))


def _item(name: str, number: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": name, "agent_id": f"agent-{number}", "description": name, **more}


def _works(rt: Runtime) -> None:
    """Committed, denied, failed in its tests, undone, and a graph of two."""
    root = rt.settings.root

    def work(name: str, script: str, **more: Any) -> RunResult:
        _agent(root, 1, script)
        return rt.work(_item(name, **more))

    committed = work(
        "committed",
        "echo 2 >> edit.txt; rm gone.txt; mkdir -p new/sub; echo n > new/sub/n; ln -sfn new link",
        test_command="test -f new/sub/n && echo tested",
    )
    assert committed.status == "success", committed
    assert work("denied", "touch a b c", constraints={"max_files": 1}).status == "denied"
    assert work("failed", "touch d", test_command="false").status == "failure"
    undone = work("undone", "echo 3 >> edit.txt")
    assert undone.status == "success", undone
    assert rt.work_items.undo(undone.receipt_id).status == "success"
    _agent(root, 2, "echo left > left.txt")
    _agent(root, 3, "cat left.txt > right.txt")
    graph = {"items": [_item("left", 2), _item("right", 3, dependencies=["left"])]}
    done = rt.work_file(yaml.safe_dump(graph), at_once=2)
    assert done.ok, done
