"""The admission rules, the limits and the order of the steps, each seen in a work item that ran."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.contract.canonical import sha256_bytes
from actum.errors import ContractInvalid
from actum.evidence.verify.work_findings import read_work_receipt
from actum.work.model import RunResult

from .shop import add_agent, item, make_project, opened, run_program

pytestmark = pytest.mark.sandbox

_THREE = "for i in 1 2 3; do printf x > f$i; done"


def _predicate(rt: Runtime, result: RunResult) -> dict[str, Any]:
    """What a receipt says, once its signature is believed."""
    envelope = json.loads(Path(result.receipt_path).read_bytes())
    return dict(read_work_receipt(envelope, rt.keyring.trusted))


# -- admission ------------------------------------------------------------------------------------


@pytest.mark.req("002-38", "002-52", "002-61", "002-53", "002-54", "002-57", "002-58", "002-40")
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("max_files", "Exceeded max files: 3 > 2"),
        ("max_delta_size", "Exceeded max delta size: 3 > 2"),
    ],
)
def test_one_call_over_a_limit_is_denied_by_the_admission(
    tmp_path: Path, limit: str, reason: str
) -> None:
    """The guard counts before a call. An agent of one call meets the admission only."""
    project = make_project(tmp_path / "p")
    add_agent(project, _THREE)
    with opened(project) as rt:
        before = rt.state_hash()
        denied = rt.work(item(constraints={limit: 2}))
        assert (denied.status, denied.denial_reason) == ("denied", reason)
        assert denied.error is None
        assert denied.metrics.tool_ops_count == 1
        assert rt.state_hash() == before
        admitted = rt.work(item(constraints={limit: 3}))
        assert (admitted.status, admitted.denial_reason) == ("success", None), admitted


@pytest.mark.req("002-38", "002-52", "002-55", "002-56", "002-61")
def test_as_many_calls_as_the_limit_are_admitted_and_one_more_is_denied(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "printf 1 > one", "printf 2 > two")
    with opened(project) as rt:
        for limit in (0, 1):
            denied = rt.work(item(constraints={"max_tool_ops": limit}))
            assert denied.status == "denied", denied
            assert denied.denial_reason == f"Exceeded max tool ops: {limit + 1} > {limit}"
            assert denied.metrics.tool_ops_count == limit
        admitted = rt.work(item(constraints={"max_tool_ops": 2}))
        assert admitted.status == "success", admitted
        assert admitted.metrics.tool_ops_count == 2


@pytest.mark.req("002-62")
def test_the_first_broken_rule_gives_the_reason(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    wide = {"max_files": 3, "max_tool_ops": 2, "max_delta_size": 3}
    with opened(project) as rt:

        def reason(**narrow: int) -> str:
            result = rt.work(item(constraints={**wide, **narrow}))
            assert result.status == "denied", result
            return str(result.denial_reason).partition(":")[0]

        # By the guard, before the second call; then by the admission, after the only call.
        add_agent(project, _THREE, "true")
        assert reason(max_files=2, max_tool_ops=1, max_delta_size=2) == "Exceeded max files"
        assert reason(max_tool_ops=1, max_delta_size=2) == "Exceeded max tool ops"
        assert reason(max_delta_size=2) == "Exceeded max delta size"
        add_agent(project, _THREE)
        assert reason(max_files=2, max_delta_size=2) == "Exceeded max files"
        assert rt.work(item(constraints=wide)).status == "success"
        for number in (1, 2, 3):
            (project / f"f{number}").unlink()
        assert reason(max_files=2) == "Exceeded max files"
        assert reason(max_delta_size=2) == "Exceeded max delta size"
        assert reason() == "Duplicate run (already in history)"


@pytest.mark.req("002-6", "002-53", "002-54", "002-1")
@pytest.mark.parametrize(("files", "status"), [(10, "success"), (11, "denied")])
def test_an_item_without_constraints_may_change_ten_files(
    tmp_path: Path, files: int, status: str
) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, f"for i in $(seq {files}); do printf x > f$i; done")
    with opened(project) as rt:
        result = rt.work(item())
        assert result.status == status, result
        assert result.metrics.files_touched == files
        if status == "denied":
            assert result.denial_reason == "Exceeded max files: 11 > 10"


@pytest.mark.req("002-7", "002-55", "002-56")
@pytest.mark.parametrize(("calls", "status"), [(50, "success"), (51, "denied")])
def test_an_item_without_constraints_may_make_fifty_calls(
    tmp_path: Path, calls: int, status: str
) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, *["printf x > f"] * calls)
    with opened(project) as rt:
        result = rt.work(item())
        assert result.status == status, result
        assert result.metrics.tool_ops_count == 50
        if status == "denied":
            assert result.denial_reason == "Exceeded max tool ops: 51 > 50"


@pytest.mark.req("002-53", "002-26", "002-27")
def test_a_path_counts_once_and_a_folder_is_no_file(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "mkdir -p a/b empty; printf 1 > a/b/f", "printf 2 > a/b/f; chmod 700 a/b/f")
    with opened(project) as rt:
        assert rt.work(item(constraints={"max_files": 0})).status == "denied"
        result = rt.work(item(constraints={"max_files": 1}))
        assert result.status == "success", result
        assert (result.metrics.files_touched, result.metrics.delta_size) == (1, 2)


@pytest.mark.req("002-1")
def test_the_same_item_on_two_copies_of_a_project_has_the_same_outcome(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"a": "1", "sub/b": "2"})
    add_agent(project, "cat a sub/b > c; rm a; chmod 750 sub; ln -s c link")
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(project, copy, symlinks=True)
    outcomes = []
    for each in (project, copy):
        with opened(each) as rt:
            result = rt.work(item())
            deltas = _predicate(rt, result)["capsule"]["deltas"]
            outcomes.append((result.status, result.output_hash, deltas))
    assert outcomes[0][0] == "success"
    assert outcomes[0] == outcomes[1]


# -- fields ---------------------------------------------------------------------------------------


@pytest.mark.req("002-2", "002-3", "002-4", "002-5", "002-11", "002-12", "002-15")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 7),
        ("agent_id", "agent-10"),
        ("description", 7),
        ("description", ["do it"]),
        ("dependencies", [1]),
        ("dependencies", "first"),
        ("budget", {"time_estimate_ms": "soon"}),
        ("budget", {"complexity": "extreme"}),
        ("budget", {"complexity": ["medium"]}),
        ("test_command", 7),
    ],
)
def test_a_field_of_another_type_is_refused_and_nothing_runs(
    tmp_path: Path, field: str, value: object
) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "printf x > ran")
    with opened(project) as rt:
        with pytest.raises(ContractInvalid) as refusal:
            rt.work(item(**{field: value}))
        assert [str(problem.field).startswith(field) for problem in refusal.value.problems] == [
            True
        ]
        assert rt.database.rows("SELECT 1 FROM work_runs") == []
    assert not (project / "ran").exists()


@pytest.mark.req("002-11", "002-12", "002-4")
@pytest.mark.parametrize(
    ("complexity", "estimate_ms"), [("low", 0), ("medium", 30_000), ("high", 86_400_000)]
)
def test_estimate_complexity_and_description_reach_agent_and_receipt(
    tmp_path: Path, complexity: str, estimate_ms: int
) -> None:
    project = make_project(tmp_path / "p")
    budget = {"time_estimate_ms": estimate_ms, "complexity": complexity}
    result = run_program(
        project,
        """
        import json, os
        item = json.load(open(os.environ["ACTUM_ITEM"]))
        open("told", "w").write(item["description"])
        """,
        description="Say what to implement",
        budget=budget,
    )
    assert result.status == "success", result
    assert (project / "told").read_text() == "Say what to implement"
    with opened(project) as rt:
        assert _predicate(rt, result)["budget"] == budget


# -- results --------------------------------------------------------------------------------------


@pytest.mark.req("002-34", "002-18", "002-32", "002-33", "002-90", "002-16")
def test_every_ending_is_a_result_with_a_receipt_file(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    with opened(project) as rt:

        def killed(said: Mapping[str, Any]) -> None:
            if said["at"] == "called":
                os.kill(_child(), signal.SIGKILL)

        add_agent(project, _THREE)
        endings = {
            "denied": rt.work(item(constraints={"max_files": 1})),
            "killed": rt.work_items.run(item(), hear=killed),
            "success": rt.work(item()),
        }
        add_agent(project, "exit 3")
        endings["failure"] = rt.work(item())
        add_agent(project, "sleep 600")
        endings["timeout"] = rt.work(item(constraints={"timeout_ms": 2_000}))
        for name, result in endings.items():
            assert result.status == ("failure" if name == "killed" else name), result
            receipt = Path(result.receipt_path)
            assert (receipt.name, receipt.is_file()) == ("RECEIPT.json", True)
            said = _predicate(rt, result)
            assert (said["receipt_id"], said["status"]) == (result.receipt_id, result.status)
            assert bool(result.error) == (result.status in ("failure", "timeout"))
            assert bool(result.denial_reason) == (result.status == "denied")


def _child() -> int:
    """The process of the work item that this process has started."""
    (found,) = [
        int(pid)
        for task in os.listdir("/proc/self/task")
        for pid in Path("/proc/self/task", task, "children").read_text().split()
        if Path("/proc", pid, "comm").read_text() == "actum-item\n"
    ]
    return found


@pytest.mark.req("002-45", "002-30")
def test_the_receipt_holds_the_result_of_the_tests(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "printf x > new")
    with opened(project) as rt:
        failed = rt.work(item(test_command="echo broken; exit 9"))
        passed = rt.work(item(test_command="echo sound; test -e new"))
        for result, code, output in ((failed, 9, "broken\n"), (passed, 0, "sound\n")):
            said = _predicate(rt, result)
            assert result.test_output == output
            assert said["tests"]["exit_code"] == code
            assert said["tests"]["output_sha256"] == sha256_bytes(output.encode())
            assert said["tests"]["base_hash"] == said["before_hash"]
        assert said["after_hash"] == passed.output_hash != said["before_hash"]


@pytest.mark.req("002-41")
def test_an_item_that_is_not_admitted_is_not_tested(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, _THREE)
    tested = {"test_command": "echo tested; exit 1"}
    with opened(project) as rt:
        denied = rt.work(item(constraints={"max_files": 2}, **tested))
        assert denied.denial_reason == "Exceeded max files: 3 > 2"
        assert denied.test_output is None
        assert _predicate(rt, denied)["tests"] is None
        # The control: with room for it, the same command runs.
        assert rt.work(item(**tested)).test_output == "tested\n"


# -- freeze, errors and rollback ------------------------------------------------------------------


@pytest.mark.req("002-36", "002-48")
def test_nothing_is_executed_if_the_state_cannot_be_frozen(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "printf x > new")
    with opened(project) as rt:
        rt.state_hash()
    (space,) = (project / ".actum/work").iterdir()
    lock = space / "index.lock"
    lock.unlink()
    lock.mkdir()
    with opened(project) as rt:
        executed = rt.database.rows("SELECT count(*) FROM executions")
        result = rt.work(item())
        assert result.status == "failure"
        assert result.error is not None
        assert result.error.startswith(f"[Errno 21] Is a directory: '{lock}'"), result.error
        assert result.metrics.tool_ops_count == 0
        assert rt.database.rows("SELECT count(*) FROM executions") == executed
        assert not (project / "new").exists()
        lock.rmdir()
        assert rt.work(item()).status == "success"


@pytest.mark.req("002-48", "002-47")
def test_an_error_is_a_failure_with_the_message_of_the_error(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "printf x > new; truncate -s 1G big")
    with opened(project) as rt:
        before = rt.state_hash()
        result = rt.work(item())
        assert result.status == "failure", result
        assert result.error is not None
        assert result.error.startswith("big: the changed files are together larger than 268435456")
        assert result.output_hash == rt.state_hash() == before
        add_agent(project, "printf x > new; truncate -s 1M big")
        assert rt.work(item()).status == "success"


def _listing(top: Path) -> dict[str, tuple[object, ...]]:
    """Every name of a project but its home, read without the product."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(top):
        if folder == str(top):
            folders.remove(".actum")
        for name in (".", *folders, *files):
            path = os.path.join(folder, name)
            look = os.lstat(path)
            held: object = None
            if stat.S_ISLNK(look.st_mode):
                held = os.readlink(path)
            elif stat.S_ISREG(look.st_mode):
                held = Path(path).read_bytes()
            found[path] = (look.st_mode, look.st_uid, look.st_gid, look.st_ino, held)
    return found


@pytest.mark.req("002-49", "002-39", "002-42", "002-47")
@pytest.mark.parametrize("engine", ["overlay", "copy"])
@pytest.mark.parametrize("end", ["failure", "denied", "timeout", "tests"])
def test_rollback_restores_every_kind_of_name(tmp_path: Path, end: str, engine: str) -> None:
    project = make_project(
        tmp_path / "p",
        {"run.sh": "1", "kept": "2", "old/x": "3", "made.o": "4", ".gitignore": "*.o"},
    )
    (project / "run.sh").chmod(0o755)
    (project / "kept").chmod(0o640)
    (project / "link").symlink_to("kept")
    os.link(project / "kept", project / "twin")
    (project / "empty").mkdir(mode=0o750)
    changes = (
        "chmod 600 run.sh; printf changed > kept; rm -r old; rm made.o; rm link;"
        " ln -s run.sh link; rmdir empty; printf new > new.o; mkdir -p a/b; chmod 700 ."
    )
    script, more = {
        "failure": (f"{changes}; exit 3", {}),
        "denied": (changes, {"constraints": {"max_files": 1}}),
        "timeout": (f"{changes}; sleep 600", {"constraints": {"timeout_ms": 3_000}}),
        "tests": (changes, {"test_command": "exit 1", "constraints": {"max_files": 20}}),
    }[end]
    add_agent(project, script)
    with opened(project) as rt:
        before, listed = rt.state_hash(), _listing(project)
        result = rt.work_items.run(item(**more), engine=engine)
        assert result.status == ("failure" if end == "tests" else end), result
        assert _listing(project) == listed
        assert result.metrics.files_touched >= 5, "it had changed what is restored"
        assert result.output_hash == rt.state_hash() == before
        said = _predicate(rt, result)
        assert said["before_hash"] == said["after_hash"] == before


@pytest.mark.req("002-49")
def test_a_rollback_is_compared_with_the_state_before(tmp_path: Path) -> None:
    """Another program changes the project while the item is rolled back: the result says so."""
    project = make_project(tmp_path / "p", {"theirs": "1"})
    add_agent(project, "printf x > new; exit 3")
    with opened(project) as rt:
        before = rt.state_hash()

        def meddle(said: Mapping[str, Any]) -> None:
            if said["at"] == "called":  # the call has ended, and the rollback comes next
                (project / "theirs").write_text("2")

        disturbed = rt.work_items.run(item(), hear=meddle)
        assert disturbed.status == "failure"
        assert disturbed.error is not None
        assert "The workspace was changed by someone else" in disturbed.error
        assert disturbed.output_hash == rt.state_hash() != before
        said = _predicate(rt, disturbed)
        assert said["after_hash"] == disturbed.output_hash
        quiet = rt.work(item())
        assert quiet.error is not None
        assert "someone else" not in quiet.error


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.req("002-85", "002-9", "002-24", "002-83", "002-84")
def test_agent_and_tests_share_one_timeout(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "printf x > new; sleep 3")
    tests = "echo testing; sleep 3"
    with opened(project) as rt:
        before = rt.state_hash()
        late = rt.work(item(constraints={"timeout_ms": 5_000}, test_command=tests))
        assert late.status == "timeout", late
        assert late.error == "The work item took longer than its 5000 ms."
        assert late.test_output == "testing\n", "the agent was done in time"
        assert 5_000 <= late.metrics.execution_time_ms < 10_000
        assert rt.state_hash() == before
        # Each alone takes less than that, and both fit into more.
        done = rt.work(item(constraints={"timeout_ms": 60_000}, test_command=tests))
        assert done.status == "success", done
        assert done.metrics.execution_time_ms >= 6_000
