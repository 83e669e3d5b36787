from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result, Runtime
from actum.approvals.approval_call import shown_bytes
from actum.approvals.requests import Approvals, State
from actum.contract.canonical import sha256_bytes
from actum.contract.os_user import OsUser, os_user
from actum.errors import Fault, Refused
from actum.evidence.records.audit import Decision
from actum.evidence.traces import Traces
from actum.store.inbox import Inbox
from common.settings import add_settings

from .project import Project, decide_all, elevated, request_ids

FILE = "/etc/passwd"


def ask(runtime: Runtime, project: Project, *read: str, **words: Any) -> Result:
    words.setdefault("stdin", b"cat /etc/passwd")
    words.setdefault("cwd", project.work)
    return runtime.exec("shell", set=elevated(*(read or (FILE,))), **words)


@pytest.mark.req("000-48")
def test_a_call_that_needs_a_decision_is_refused_and_leaves_a_request(
    runtime: Runtime, project: Project
) -> None:
    result = ask(runtime, project, purpose="look at the users")
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("APPROVAL_REQUIRED",))
    assert project.runner.plans == []
    (violation,) = result.violations
    assert violation.field == "AG-05"
    request = runtime.approvals.find(violation.value)
    command = f"actum approvals approve {request.request_id} --by WHO --why TEXT"
    assert command in violation.message
    assert (request.kind, request.gate, request.state) == ("request", "AG-05", State.PENDING)
    assert request.requested_at == "2026-11-15T12:00:00.000Z"
    assert request.expires_at == "2026-11-15T13:00:00.000Z"
    assert request.document == {
        "requested_by": "user:asker",
        "requested_as": {"uid": os.getuid(), "name": os_user().name},
        "execution_id": result.execution_id,
        "tool_id": "TL-010",
        "action": {
            "type": "permission",
            "target": f"filesystem level elevated: {FILE}",
            "operation": "read",
            "justification": "look at the users",
        },
        "context": {"session_id": result.session},
        "risk_assessment": {
            "risk_level": "high",
            "risk_factors": ["reads outside the project"],
            "mitigations": ["sandbox", "single use"],
        },
    }


def test_the_same_call_asked_again_is_the_same_request(runtime: Runtime, project: Project) -> None:
    first = request_ids(ask(runtime, project))
    project.clock.pass_by(minutes=5)
    assert request_ids(ask(runtime, project)) == first
    assert len(runtime.approvals.latest()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"stdin": b"cat /etc/group"},
        {"env": {"LANG": "C"}},
        {"purpose": "another one"},
        {"requested_by": "user:another"},
        {"timeout": "7s"},
        {"read": ("/etc/group",)},
        {"read": (FILE, "/etc/group")},
        {"arguments": ("x",)},
        {"elsewhere": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_changed_is_another_request_and_no_decision_carries_over(
    runtime: Runtime, project: Project, change: dict[str, Any]
) -> None:
    decided = decide_all(runtime, ask(runtime, project))
    words = dict(change)
    if words.pop("elsewhere", False):
        (project.work / "below").mkdir()
        words["cwd"] = project.work / "below"
    read = words.pop("read", (FILE,))
    arguments = words.pop("arguments", ())
    words.setdefault("stdin", b"cat /etc/passwd")
    words.setdefault("cwd", project.work)
    result = runtime.exec("shell", *arguments, set=elevated(*read), **words)
    assert set(request_ids(result)).isdisjoint(decided)
    assert project.runner.plans == []


def test_a_tool_that_was_approved_anew_needs_a_new_decision(project: Project) -> None:
    with project.open() as runtime:
        first = decide_all(runtime, ask(runtime, project))
    project.approve_change("another sentence")
    with project.open() as runtime:
        assert set(request_ids(ask(runtime, project))).isdisjoint(first)


def test_settings_that_give_the_same_call_more_need_a_new_decision(tmp_path: Path) -> None:
    more = tmp_path.resolve() / "more"
    more.mkdir()
    project = Project(tmp_path, scope=(".", "/etc", str(more)))
    fields = {"sandbox.filesystem.level": "elevated"}
    with project.open() as runtime:
        words: Any = {"stdin": b"true", "cwd": project.work, "set": fields}
        first = decide_all(runtime, runtime.exec("shell", **words))
    add_settings(project.root, f'[filesystem]\ndependencies = ["{more}"]\n')
    with project.open() as runtime:
        again = runtime.exec("shell", **words)
        assert set(request_ids(again)).isdisjoint(first)


def test_a_changed_input_file_is_another_request(runtime: Runtime, project: Project) -> None:
    data = project.work / "data"
    data.write_text("one")
    words = {"files": ["data"]}
    first = decide_all(runtime, ask(runtime, project, **words))
    data.write_text("two")
    assert request_ids(ask(runtime, project, **words)) != first
    data.write_text("one")
    assert ask(runtime, project, **words).outcome is Outcome.SUCCEEDED


@pytest.mark.req("000-48")
def test_an_approved_call_runs_once(runtime: Runtime, project: Project) -> None:
    (request_id,) = decide_all(runtime, ask(runtime, project))
    result = ask(runtime, project)
    assert result.outcome is Outcome.SUCCEEDED
    (plan,) = project.runner.plans
    assert FILE in plan.policy.read
    assert plan.policy.approvals == ("AG-01:pin", f"AG-05:user:boss:{request_id}")
    used = runtime.approvals.find(request_id)
    assert (used.state, used.used_by) == (State.USED, result.execution_id)
    again = ask(runtime, project)
    assert request_ids(again) != [request_id]
    assert len(project.runner.plans) == 1


@pytest.mark.req("000-48")
def test_receipt_trace_and_audit_name_the_decision(runtime: Runtime, project: Project) -> None:
    asked = ask(runtime, project)
    (request_id,) = decide_all(runtime, asked)
    result = ask(runtime, project)
    kept = runtime.services.receipts.get(result.receipt_id)
    assert kept is not None
    predicate = json.loads(base64.b64decode(kept.envelope["payload"]))["predicate"]
    entry = f"AG-05:user:boss:{request_id}"
    assert entry in predicate["approvals"]
    assert entry in predicate["policy"]["document"]["approvals"]
    events = Traces(runtime.database)
    told = [
        each["data"]
        for each in (
            *events.of_execution(asked.execution_id),
            *events.of_execution(result.execution_id),
        )
        if each["event_type"] == "approval"
    ]
    facts = {"gate": "AG-05", "request_id": request_id}
    assert told == [
        {**facts, "decided_by": "", "state": "requested"},
        {**facts, "decided_by": "user:boss", "state": "used"},
    ]
    records = [json.loads(row[0]) for row in runtime.database.rows("SELECT record FROM audit")]
    logged = [record for record in records if record["kind"] == "APPROVAL"]
    assert [record["event"] for record in logged] == ["requested", "decided", "used"]
    # Each binds the row as it was then; the reason and the request itself as digests.
    columns = [record.pop("rows")[0]["columns"] for record in logged]
    assert [each["state"] for each in columns] == ["pending", "approved", "used"]
    assert columns[1]["rationale"] == f"sha256:{sha256_bytes(b'looked at it')}"
    assert logged[1] == {
        "v": 3,
        "kind": "APPROVAL",
        "event": "decided",
        "ts": "2026-11-15T12:00:00.000Z",
        "request_id": request_id,
        "gate": "AG-05",
        "call_sha256": runtime.approvals.find(request_id).call_sha256,
        "execution_id": asked.execution_id,
        "requested_by": "user:asker",
        "requested_uid": os.getuid(),
        "requested_user": os_user().name,
        "decision": "ALLOW",
        "decided_by": "user:boss",
        "decided_uid": os.getuid(),
        "decided_user": os_user().name,
        "decided_role": "any",
        "rationale_sha256": sha256_bytes(b"looked at it"),
    }
    findings = runtime.verifier.verify_all()
    assert [finding for finding in findings if not finding.passed] == []


def test_several_needs_are_several_requests_and_all_of_them_must_be_approved(
    tmp_path: Path,
) -> None:
    target = tmp_path.resolve() / "target"
    target.mkdir()
    project = Project(tmp_path, scope=(".", "/etc", str(target)))
    with project.open() as runtime:
        fields = elevated(FILE, write=[str(target)])

        def again() -> Result:
            return runtime.exec("shell", stdin=b"true", cwd=project.work, set=fields)

        first, second = request_ids(again())
        assert [runtime.approvals.find(each).gate for each in (first, second)] == ["AG-05", "AG-04"]
        runtime.approvals.decide(first, Decision.ALLOW, by="boss", why="fine")
        assert request_ids(again()) == [second]
        assert runtime.approvals.find(first).state is State.APPROVED
        runtime.approvals.decide(second, Decision.ALLOW, by="boss", why="fine")
        assert again().outcome is Outcome.SUCCEEDED
        assert {runtime.approvals.find(each).state for each in (first, second)} == {State.USED}


def test_a_denied_call_stays_refused_until_the_request_expires(
    runtime: Runtime, project: Project
) -> None:
    (request_id,) = decide_all(runtime, ask(runtime, project), Decision.DENY)
    refused = ask(runtime, project)
    assert refused.reason_codes == ("APPROVAL_DENIED",)
    assert "user:boss" in refused.violations[0].message
    project.clock.pass_by(hours=1)
    assert request_ids(ask(runtime, project)) != [request_id]
    assert project.runner.plans == []


def test_an_expired_approval_serves_no_more(runtime: Runtime, project: Project) -> None:
    (request_id,) = decide_all(runtime, ask(runtime, project))
    project.clock.pass_by(minutes=59, seconds=59)
    assert runtime.approvals.find(request_id).state is State.APPROVED
    project.clock.pass_by(seconds=1)
    assert runtime.approvals.find(request_id).state is State.EXPIRED
    assert request_ids(ask(runtime, project)) != [request_id]
    assert project.runner.plans == []


def test_a_written_request_time_does_not_stretch_an_approval(
    runtime: Runtime, project: Project
) -> None:
    def again() -> Result:
        fields = elevated(FILE) | {"metadata.requested_at": "2099-01-01T00:00:00Z"}
        return runtime.exec("shell", stdin=b"true", cwd=project.work, set=fields)

    decide_all(runtime, again())
    project.clock.pass_by(hours=2)
    assert again().reason_codes == ("APPROVAL_REQUIRED",)


@pytest.mark.parametrize("by", ["user:asker", "asker", "USER:Asker"])
def test_the_requester_cannot_decide(runtime: Runtime, project: Project, by: str) -> None:
    (request_id,) = request_ids(ask(runtime, project))
    with pytest.raises(Refused) as refusal:
        runtime.approvals.decide(request_id, Decision.ALLOW, by=by, why="I want it")
    assert refusal.value.code == "APPROVER_IS_REQUESTER"
    assert runtime.approvals.find(request_id).state is State.PENDING


@pytest.mark.parametrize(
    ("by", "why"), [("", "x"), ("two words", "x"), ("boss", " "), ("boss", "x" * 2_001)]
)
def test_a_decision_needs_a_name_and_a_reason(
    runtime: Runtime, project: Project, by: str, why: str
) -> None:
    (request_id,) = request_ids(ask(runtime, project))
    with pytest.raises(Refused) as refusal:
        runtime.approvals.decide(request_id, Decision.ALLOW, by=by, why=why)
    assert refusal.value.code == "DECISION_UNFIT"


def test_a_request_is_decided_once(runtime: Runtime, project: Project) -> None:
    (request_id,) = decide_all(runtime, ask(runtime, project))
    with pytest.raises(Refused) as refusal:
        runtime.approvals.decide(request_id, Decision.DENY, by="other", why="no")
    assert refusal.value.code == "ALREADY_DECIDED"
    with pytest.raises(Refused) as unknown:
        runtime.approvals.decide("nothing", Decision.DENY, by="other", why="no")
    assert unknown.value.code == "APPROVAL_UNKNOWN"


def test_an_expiry_that_was_moved_in_the_store_gives_nothing(
    runtime: Runtime, project: Project
) -> None:
    (request_id,) = decide_all(runtime, ask(runtime, project))
    connection = runtime.database._connection
    ((trigger,),) = connection.execute(
        "SELECT sql FROM sqlite_master WHERE name = 'approvals_are_decided_once'"
    ).fetchall()
    connection.execute("DROP TRIGGER approvals_are_decided_once")
    connection.execute("UPDATE approvals SET expires_at = '2099-01-01T00:00:00.000Z'")
    connection.execute(trigger)
    project.clock.pass_by(hours=2)
    refused = ask(runtime, project)
    assert refused.reason_codes == ("APPROVAL_NOT_RECORDED",)
    assert project.runner.plans == []
    (changed,) = [each for each in runtime.verifier.verify_all() if not each.passed]
    assert changed.subject == f"approval {request_id}"
    assert "approvals.expires_at: expected 2026-" in changed.detail


def test_of_two_runtimes_that_use_one_approval_at_once_one_is_refused(
    runtime: Runtime, project: Project
) -> None:
    asked = ask(runtime, project)
    (request_id,) = decide_all(runtime, asked)
    with project.open() as other:
        sha256 = runtime.approvals.find(request_id).call_sha256
        need = runtime.approvals.find(request_id).need
        grants = [
            each.approvals.decided(sha256, [need], project.clock()) for each in (runtime, other)
        ]
        assert grants[0] == grants[1] != ()
        with runtime.services.ledger.log.page() as page:
            runtime.approvals.using(grants[0], "one", project.clock())(page)
        with pytest.raises(Refused) as refusal, other.services.ledger.log.page() as page:
            other.approvals.using(grants[1], "two", project.clock())(page)
        assert refusal.value.code == "APPROVAL_USED"
        assert other.approvals.find(request_id).used_by == "one"


def test_many_threads_and_runtimes_get_one_run_out_of_one_approval(
    runtime: Runtime, project: Project
) -> None:
    decide_all(runtime, ask(runtime, project))
    others = [project.open() for _ in range(4)]
    barrier = threading.Barrier(len(others))
    results: list[Result] = []

    def race(one: Runtime) -> None:
        barrier.wait()
        results.append(ask(one, project))

    threads = [threading.Thread(target=race, args=(each,)) for each in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in others:
        each.close()
    outcomes = [result.outcome for result in results]
    assert outcomes.count(Outcome.SUCCEEDED) == 1
    assert outcomes.count(Outcome.REJECTED) == 3
    assert len(project.runner.plans) == 1


def test_what_breaks_before_the_start_leaves_the_approval_unused(
    runtime: Runtime, project: Project
) -> None:
    (request_id,) = decide_all(runtime, ask(runtime, project))
    project.runner.broken = True
    with pytest.raises(Fault):
        ask(runtime, project)
    assert runtime.approvals.find(request_id).state is State.APPROVED
    project.runner.broken = False
    assert ask(runtime, project).outcome is Outcome.SUCCEEDED


def test_a_row_that_somebody_edited_approves_nothing(runtime: Runtime, project: Project) -> None:
    (request_id,) = request_ids(ask(runtime, project))
    with sqlite3.connect(project.root / ".actum/actum.db") as edited:
        edited.execute(
            "UPDATE approvals SET state = 'approved', decided_by = 'user:boss', decision_seq = 1"
            " WHERE request_id = ?",
            (request_id,),
        )
    edited.close()
    assert ask(runtime, project).reason_codes == ("APPROVAL_NOT_RECORDED",)
    assert project.runner.plans == []


def test_looking_whether_a_call_would_run_leaves_no_request(
    runtime: Runtime, project: Project
) -> None:
    document = {
        "tool_id": "TL-010",
        "inputs": {"command": "sh", "working_directory": str(project.work), "stdin": "true"},
        "sandbox": {"filesystem": {"level": "elevated", "read": [".", FILE]}},
    }
    forecast = runtime.check(document)
    assert [violation.code for violation in forecast.violations] == ["APPROVAL_REQUIRED"]
    assert runtime.approvals.latest() == ()


def test_permission_denied_is_an_escalation_that_asks_for_nothing(
    runtime: Runtime, project: Project
) -> None:
    project.runner.code = 126
    result = runtime.exec("shell", stdin=b"exit 126", cwd=project.work)
    assert result.outcome is Outcome.PERMISSION_DENIED
    (told,) = runtime.approvals.latest(undecided=True)
    assert (told.kind, told.state, told.gate) == ("escalation", State.NOTED, "EXIT-126")
    assert told.document["execution_id"] == result.execution_id
    with pytest.raises(Refused) as refusal:
        runtime.approvals.decide(told.request_id, Decision.ALLOW, by="boss", why="x")
    assert refusal.value.code == "NOTHING_TO_DECIDE"


def test_waiting_goes_on_when_somebody_approves(runtime: Runtime, project: Project) -> None:
    def decide() -> None:
        with project.open() as other:
            until = time.monotonic() + 20
            # The call is stored after its request.
            while not any(map(other.approvals.call_of, other.approvals.latest(undecided=True))):
                assert time.monotonic() < until
                time.sleep(0.02)
            (request,) = other.approvals.latest(undecided=True)
            other.approvals.decide(request.request_id, Decision.ALLOW, by="boss", why="fine")

    boss = threading.Thread(target=decide)
    boss.start()
    result = ask(runtime, project, wait_s=30)
    boss.join()
    assert result.outcome is Outcome.SUCCEEDED
    assert len(project.runner.plans) == 1


def test_waiting_ends_with_a_denial_or_with_the_time(runtime: Runtime, project: Project) -> None:
    assert ask(runtime, project, wait_s=0.05).reason_codes == ("APPROVAL_REQUIRED",)
    decide_all(runtime, ask(runtime, project), Decision.DENY)
    assert ask(runtime, project, wait_s=30).reason_codes == ("APPROVAL_DENIED",)


def actum(project: Project, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "actum.doors.cli.main", *words]
    return subprocess.run(
        command, input=stdin, capture_output=True, cwd=project.work, timeout=60, check=False
    )


ELEVATED_WORDS = (
    *("--set", 'sandbox.filesystem.level="elevated"'),
    *("--set", f'sandbox.filesystem.read=[".", "{FILE}"]'),
)


@pytest.mark.sandbox
@pytest.mark.req("000-47", "000-48")
def test_the_commands_list_show_approve_and_deny(project: Project) -> None:
    script = b"cat /etc/passwd; cat /etc/shadow || echo hidden"
    ask_again = ("exec", "--json", "shell", "--stdin", "-", *ELEVATED_WORDS)
    assert actum(project, *ask_again, stdin=script).returncode == 3
    (listed,) = json.loads(actum(project, "approvals", "list", "--json").stdout)["approvals"]
    request_id = listed["request_id"]
    shown = actum(project, "approvals", "show", request_id).stdout.decode()
    assert f"action.target: filesystem level elevated: {FILE}" in shown
    decide = ("approvals", "approve", request_id, "--why", "a test")
    own = actum(project, *decide, "--by", listed["requested_by"])
    assert (own.returncode, b"APPROVER_IS_REQUESTER" in own.stderr) == (3, True)
    approved = actum(project, *decide, "--by", "boss")
    assert approved.returncode == 0, approved.stderr
    done = json.loads(actum(project, *ask_again, stdin=script).stdout)
    assert done["outcome"] == "SUCCEEDED"
    assert done["result"]["stdout"] == Path(FILE).read_text() + "hidden\n"
    assert actum(project, *ask_again, stdin=script).returncode == 3
    (again,) = json.loads(actum(project, "approvals", "list", "--json").stdout)["approvals"]
    denied = actum(project, "approvals", "deny", again["request_id"], "--by", "b", "--why", "no")
    assert b"denied by b" in denied.stdout
    refused = json.loads(actum(project, *ask_again, stdin=script).stdout)
    assert refused["reason_codes"] == ["APPROVAL_DENIED"]
    everything = actum(project, "approvals", "list", "--all").stdout.decode()
    assert ("used" in everything, "denied" in everything) == (True, True)


@pytest.mark.sandbox
def test_exec_waits_for_the_decision_and_goes_on(project: Project) -> None:
    command = [sys.executable, "-m", "actum.doors.cli.main", "exec", "--wait=30s", "shell"]
    waiting = subprocess.Popen(
        [*command, "--stdin", "-", *ELEVATED_WORDS],
        cwd=project.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert waiting.stdin is not None
    waiting.stdin.write(b"echo allowed")
    waiting.stdin.close()
    assert waiting.stderr is not None
    assert b"waiting" in waiting.stderr.readline()
    line = waiting.stderr.readline().decode()
    request_id = line.split("Request ")[1].split(":")[0]
    approve = ("approvals", "approve", request_id, "--by", "boss", "--why", "fine")
    assert actum(project, *approve).returncode == 0
    assert waiting.wait(30) == 0
    assert waiting.stdout is not None
    assert waiting.stdout.read() == b"allowed\n"
    waiting.stdout.close()
    waiting.stderr.close()


# with the approval it really works, and opens nothing beside


def readable_files(count: int) -> list[str]:
    """Files of this host's /etc that everybody may read and no sandbox has of its own."""
    own = {"passwd", "group", "hosts", "hostname", "resolv.conf", "nsswitch.conf", "localtime"}
    found = [
        str(path)
        for path in sorted(Path("/etc").iterdir())
        if path.is_file()
        and not path.is_symlink()
        and path.stat().st_mode & 0o004
        and 0 < path.stat().st_size < 4_096
        and path.name not in own
        and path.name not in ("host.conf", "gai.conf", "services", "protocols", "debian_version")
    ]
    return found[:count]


@pytest.mark.sandbox
@pytest.mark.req("000-14", "000-47", "000-48")
def test_an_approved_system_file_is_read_and_another_one_is_not(project: Project) -> None:
    wanted, other = readable_files(2)
    script = f"cat {wanted}; cat {other} || echo not there; echo x >> {wanted} || echo read-only"
    control = subprocess.run(["cat", other], capture_output=True, check=True).stdout
    with project.open(real=True) as runtime:
        words = {"stdin": script.encode(), "cwd": project.work, "set": elevated(wanted)}
        first = runtime.exec("shell", **words)
        assert first.reason_codes == ("APPROVAL_REQUIRED",)
        decide_all(runtime, first)
        result = runtime.exec("shell", **words)
    assert result.result is not None, result.violations
    assert result.result.stdout == Path(wanted).read_text() + "not there\nread-only\n"
    assert control.decode() not in result.result.stdout


@pytest.mark.sandbox
@pytest.mark.req("000-47")
def test_an_approved_elevated_call_writes_no_path_that_it_does_not_list(project: Project) -> None:
    with project.open(real=True) as runtime:
        script = b"echo mine > own && echo written || echo read-only"
        words = {"stdin": script, "cwd": project.work}
        assert runtime.exec("shell", **words).check().result.stdout == "written\n"
        words["set"] = elevated(*readable_files(1))
        decide_all(runtime, runtime.exec("shell", **words))
        result = runtime.exec("shell", **words)
    assert result.result is not None, result.violations
    assert result.result.stdout == "read-only\n"


@pytest.mark.req("000-47")
@pytest.mark.parametrize("path", ["/", "/etc/..", "/dev", "/proc/sys", "/sys"])
def test_what_is_no_specific_path_is_never_written(tmp_path: Path, path: str) -> None:
    project = Project(tmp_path, scope=("/",))
    with project.open() as runtime:
        words = {"stdin": b"true", "cwd": project.work}
        refused = runtime.exec("shell", **words, set=elevated(write=[path]))
        assert refused.result is None
        fields = [each.field for each in refused.violations]
        assert "sandbox.filesystem.write[0]" in fields, refused.violations
        # One path of its own is a matter of approval.
        asked = runtime.exec("shell", **words, set=elevated(write=["/opt"]))
        assert asked.reason_codes == ("APPROVAL_REQUIRED",)


@pytest.mark.sandbox
@pytest.mark.req("000-15", "000-47")
def test_an_approved_path_outside_is_written_and_its_neighbour_is_not(tmp_path: Path) -> None:
    target, neighbour = (tmp_path.resolve() / name for name in ("target", "neighbour"))
    for each in (target, neighbour):
        each.mkdir()
    project = Project(tmp_path, scope=(".", str(target), str(neighbour)))
    script = f"echo one > {target}/file && echo two > {neighbour}/file || echo no"
    with project.open(real=True) as runtime:
        words = {
            "stdin": script.encode(),
            "cwd": project.work,
            "set": elevated(write=[str(target)]),
        }
        decide_all(runtime, runtime.exec("shell", **words))
        result = runtime.exec("shell", **words)
    assert result.result is not None, result.violations
    assert result.result.stdout == "no\n"
    assert (target / "file").read_text() == "one\n"
    assert list(neighbour.iterdir()) == []


@pytest.mark.sandbox
def test_an_approved_system_file_may_be_an_input_file(project: Project) -> None:
    (wanted,) = readable_files(1)
    with project.open(real=True) as runtime:
        words = {
            "stdin": f"wc -c < {wanted}".encode(),
            "cwd": project.work,
            "files": [wanted],
            "set": elevated(wanted),
        }
        decide_all(runtime, runtime.exec("shell", **words))
        result = runtime.exec("shell", **words)
    assert result.result is not None, result.violations
    assert int(result.result.stdout) == Path(wanted).stat().st_size


@pytest.mark.sandbox
def test_an_approved_etc_as_a_whole_is_the_hosts_own(project: Project) -> None:
    with project.open(real=True) as runtime:
        words = {"stdin": b"ls /etc", "cwd": project.work, "set": elevated("/etc")}
        decide_all(runtime, runtime.exec("shell", **words))
        before = _visible("/etc")
        result = runtime.exec("shell", **words)
        after = _visible("/etc")
    assert result.result is not None, result.violations
    # Others may install something meanwhile.
    assert before & after <= set(result.result.stdout.split()) <= before | after


def _visible(folder: str) -> set[str]:
    return {name for name in os.listdir(folder) if not name.startswith(".")}


def inbox(project: Project) -> list[str]:
    folder = project.root / ".actum/inbox"
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_what_a_person_is_shown_is_what_the_decision_is_bound_to(
    runtime: Runtime, project: Project
) -> None:
    (request_id,) = request_ids(ask(runtime, project, env={"LANG": "C"}))
    request = runtime.approvals.find(request_id)
    shown = runtime.approvals.call_of(request)
    assert shown is not None
    file = project.root / ".actum/inbox" / request.call_sha256
    assert sha256_bytes(file.read_bytes()) == request.call_sha256
    assert file.stat().st_mode & 0o777 == 0o600
    assert shown["call"]["argv"] == ["sh", "-s", "--"]
    assert shown["call"]["stdin"]["head"] == "cat /etc/passwd"
    assert shown["call"]["environment"] == ["LANG"]
    assert FILE in shown["grants"]["filesystem"]["read"]
    assert shown["adds"] == {"read": [FILE]}
    # Another call in its place is not shown, and cannot be approved unseen.
    file.write_bytes(file.read_bytes().replace(b"cat /etc/passwd", b"cat /etc/group "))
    assert runtime.approvals.call_of(request) is None
    with pytest.raises(Refused) as refused:
        runtime.approvals.decide(request_id, Decision.ALLOW, by="boss", why="looks fine")
    assert refused.value.code == "CALL_NOT_KEPT"
    assert request_ids(ask(runtime, project, env={"LANG": "C"})) == [request_id]
    assert runtime.approvals.call_of(request) == shown
    runtime.approvals.decide(request_id, Decision.ALLOW, by="boss", why="looked at it")
    assert ask(runtime, project, env={"LANG": "C"}).outcome is Outcome.SUCCEEDED


def test_the_bytes_of_a_call_rest_in_the_inbox_and_in_no_record(
    runtime: Runtime, project: Project
) -> None:
    mark = b"mark-5e1f07aa"
    request_ids(ask(runtime, project, stdin=b"echo " + mark, env={"LANG": mark.decode()}))
    runtime.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    home = project.root / ".actum"
    holders = {
        str(path.relative_to(home).parts[0])
        for path in home.rglob("*")
        if path.is_file() and mark in path.read_bytes()
    }
    assert holders == {"inbox"}


@pytest.mark.parametrize("end", ["used", "denied", "expired"])
def test_a_call_rests_only_while_a_decision_about_it_can_be_used(
    project: Project, end: str
) -> None:
    with project.open() as runtime:
        result = ask(runtime, project)
        kept = runtime.approvals.find(request_ids(result)[0]).call_sha256
        other = ask(runtime, project, stdin=b"true")
        stays = runtime.approvals.find(request_ids(other)[0]).call_sha256
        assert inbox(project) == sorted([kept, stays])
        if end == "denied":
            decide_all(runtime, result, Decision.DENY)
        elif end == "used":
            decide_all(runtime, result)
            ask(runtime, project)
        else:
            project.clock.pass_by(minutes=40)
            ask(runtime, project, stdin=b"true", purpose="again")
            project.clock.pass_by(minutes=30)
        runtime.sweep()
    left = inbox(project)
    assert kept not in left
    assert len(left) == 1
    assert (stays in left) is (end != "expired")


def test_the_users_of_the_system_are_on_record_and_their_being_one_is_visible(
    runtime: Runtime, project: Project
) -> None:
    home = runtime.settings.home
    other = Approvals(
        runtime.database,
        runtime.services.ledger.log,
        project.clock,
        Inbox(home),
        OsUser(uid=os.getuid() + 1, name="eve"),
    )
    for decider, same in ((runtime.approvals, True), (other, False)):
        words = {"purpose": f"same {same}"}
        (request_id,) = request_ids(ask(runtime, project, **words))
        decider.decide(request_id, Decision.ALLOW, by="boss", why="fine")
        request = runtime.approvals.find(request_id)
        assert request.granted.same_user is same
        result = ask(runtime, project, **words)
        assert result.outcome is Outcome.SUCCEEDED
        kept = runtime.services.receipts.find(result.receipt_id)
        predicate = json.loads(base64.b64decode(kept.envelope["payload"]))["predicate"]
        user = os_user() if same else OsUser(uid=os.getuid() + 1, name="eve")
        assert predicate["decisions"] == [
            {
                "gate": "AG-05",
                "request_id": request_id,
                "decided_by": "boss",
                "decided_uid": user.uid,
                "decided_user": user.name,
                "requested_uid": os.getuid(),
                "role": "any",
                "same_user": same,
            }
        ]
        (found,) = [
            each
            for each in runtime.verifier.verify_execution(result.receipt_id)
            if each.check == "approval"
        ]
        assert found.passed
        assert ("the same user asked and approved" in found.detail) is same
    findings = runtime.verifier.verify_all()
    assert [finding for finding in findings if not finding.passed] == []


def test_a_row_that_names_another_decider_than_the_signed_record_permits_nothing(
    runtime: Runtime, project: Project
) -> None:
    result = ask(runtime, project)
    (request_id,) = decide_all(runtime, result)
    with runtime.database.transaction() as cursor:
        cursor.execute("DROP TRIGGER approvals_are_decided_once")
        cursor.execute(
            "UPDATE approvals SET decided_uid = 4242, decided_user = 'eve' WHERE request_id = ?",
            (request_id,),
        )
    assert ask(runtime, project).reason_codes == ("APPROVAL_NOT_RECORDED",)
    assert project.runner.plans == []


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"echo \xc3\xa4", {"encoding": "utf-8", "head": "echo \u00e4", "truncated": False}),
        (b"\xff\x00", {"encoding": "hex", "head": "ff00", "truncated": False}),
        (b"\xff" * 300, {"encoding": "hex", "head": "ff" * 256, "truncated": True}),
        (b"a" * 65_536, {"encoding": "utf-8", "head": "a" * 65_536, "truncated": False}),
        (b"a" * 65_537, {"encoding": "utf-8", "head": "a" * 4_096, "truncated": True}),
        (
            b"a" * 4_095 + b"\xc3\xa4" * 40_000,
            {"encoding": "utf-8", "head": "a" * 4_095, "truncated": True},
        ),
        (b"a" * 70_000 + b"\xff", {"encoding": "utf-8", "head": "a" * 4_096, "truncated": True}),
    ],
)
def test_an_input_is_shown_whole_or_by_its_beginning_and_digest(
    content: bytes, shown: dict[str, object]
) -> None:
    about = {"bytes": len(content), "sha256": sha256_bytes(content)}
    assert shown_bytes(content) == {**about, **shown}
