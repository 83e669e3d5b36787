"""Results, undo and replay are exact: names, bytes, owners, counts; and they harm no project."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from actum import Runtime
from actum.errors import Refused
from actum.evidence.verify.work_findings import read_work_receipt

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox


def _listing(top: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(top):
        if folder == str(top):
            folders.remove(".actum")
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            look = os.lstat(path)
            content = Path(path).read_bytes() if stat.S_ISREG(look.st_mode) else b""
            found[path] = (stat.S_IFMT(look.st_mode), look.st_mode & 0o777, look.st_uid, content)
    return found


# -- dependencies of single items -----------------------------------------------------------------


@pytest.mark.req("002-87")
def test_a_single_item_waits_for_its_dependencies(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "printf x > first")
    add_agent(project, "printf x > second", number=2)
    second = item(id="second", agent_id="agent-2", dependencies=["first"])
    with opened(project) as rt:
        with pytest.raises(Refused) as refused:
            rt.work(second)
        assert refused.value.code == "WORK_BLOCKED"
        assert "first" in refused.value.message
        assert rt.database.rows("SELECT 1 FROM work_runs") == []
        done = rt.work(item(id="first"))
        assert done.status == "success"
        assert rt.work(second).status == "success"
        for result in (rt.work_items.undo(_last(rt)), rt.work_items.undo(done.receipt_id)):
            assert result.status == "success"
        with pytest.raises(Refused, match="undone since"):
            rt.work(second)


def _last(rt: Runtime) -> str:
    return rt.database.rows("SELECT receipt_id FROM work_receipts ORDER BY final_seq DESC")[0][0]


# -- undo -----------------------------------------------------------------------------------------


def test_undo_brings_back_the_bytes_of_a_file_that_has_another_name(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"one": "original"})
    os.link(project / "one", project / "two")
    add_agent(project, "printf changed > one")
    with opened(project) as rt:
        done = rt.work(item())
        assert done.status == "success"
        with (project / "two").open("r+") as file:
            file.write("OVERWRITTEN IN PLACE")
        undone = rt.work_items.undo(done.receipt_id)
        assert (project / "one").read_text() == "original"
        assert undone.output_hash == rt.state_hash()
        assert all(finding.passed for finding in rt.verifier.verify_all())


def test_undo_refuses_kept_bytes_that_a_program_went_on_writing(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"log": "original", "other": "1"})
    add_agent(project, "printf changed > log; printf 2 > other")
    with opened(project) as rt, (project / "log").open("r+") as still_open:
        done = rt.work(item())
        assert done.status == "success"
        still_open.write("written through an old descriptor")
        still_open.flush()
        before = _listing(project)
        with pytest.raises(Refused) as refused:
            rt.work_items.undo(done.receipt_id)
        assert refused.value.code == "UNDO_KEPT_CHANGED"
        assert "log" in refused.value.message
        assert _listing(project) == before
        # And that what was kept is not what the record says is found without an undo.
        (changed,) = [each for each in rt.verifier.verify_all() if not each.passed]
        assert (changed.subject.split("/")[-2:], changed.check) == (["old", "0"], "content")
    with opened(project) as rt:
        assert rt.database.rows("SELECT 1 FROM work_runs WHERE state = 'OPEN'") == []
        assert list((next((project / ".actum/work").iterdir()) / "rooms").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of several owners")
def test_undo_gives_every_file_and_folder_back_to_its_owner(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"file": "1", "folder/file": "2", "folder/deep/x": "3"})
    (project / "folder/link").symlink_to("file")
    for name in ("file", "folder", "folder/file", "folder/deep", "folder/deep/x", "folder/link"):
        os.chown(project / name, 12_345, 54_321, follow_symlinks=False)
    # The tool is the owner of the project: it can remove what others own in folders of its own.
    os.chown(project / "folder", 0, 54_321)
    (project / "folder/deep").chmod(0o777)
    (project / "folder").chmod(0o777)
    add_agent(project, "rm -rf folder file && mkdir file")
    before = {
        name: (os.lstat(project / name).st_uid, os.lstat(project / name).st_gid)
        for name in ("file", "folder", "folder/file", "folder/deep", "folder/deep/x", "folder/link")
    }
    listed = _listing(project)
    with opened(project) as rt:
        done = rt.work(item())
        assert done.status == "success", done
        assert not (project / "folder").exists()
        rt.work_items.undo(done.receipt_id)
    assert _listing(project) == listed
    assert before == {
        name: (os.lstat(project / name).st_uid, os.lstat(project / name).st_gid) for name in before
    }


# -- names ----------------------------------------------------------------------------------------

_NAMES = (b"100%.txt", b"100%25.txt", b"new\nline", b"latin-\xe9", b"%:x", "ü".encode())


def test_results_name_files_exactly(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    octal = ("".join(f"\\{byte:03o}" for byte in name) for name in _NAMES)
    # The dot: a shell takes newlines off the end of what it substitutes.
    add_agent(project, "".join(f"printf x > \"$(printf '%b.' '{name}')\"\n" for name in octal))
    with opened(project) as rt:
        result = rt.work(item(constraints={"max_files": 20}))
        assert result.status == "success", result
        top = os.fsencode(project)
        wanted = {top + b"/" + name + b"." for name in _NAMES}
        assert {os.fsencode(path) for path in result.created_files} == wanted
        assert {os.fsencode(path) for path in result.artifact_hashes} == wanted
        assert all(os.path.lexists(path) for path in result.created_files)
        said = read_work_receipt(
            json.loads(Path(result.receipt_path).read_bytes()), rt.keyring.trusted
        )
        told = [artifact["path"] for artifact in said["capsule"]["artifacts"]]
        assert "100%.txt." in told
        assert len(set(told)) == len(_NAMES), "no two names are told alike"
        rt.work_items.undo(result.receipt_id)
    assert not any(os.path.lexists(path) for path in wanted)


# -- counts ---------------------------------------------------------------------------------------


def test_metrics_of_a_denied_a_failed_and_a_late_run_tell_what_it_did(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    make = "for i in 1 2 3; do printf x > f$i; done"
    with opened(project) as rt:
        add_agent(project, make, "true")
        denied = rt.work(item(constraints={"max_files": 2}))
        add_agent(project, f"{make}; exit 7")
        failed = rt.work(item())
        add_agent(project, f"{make}; sleep 600")
        # The agent has made its files by then on a busy machine, too.
        waits = max(4_000, 4 * failed.metrics.execution_time_ms)
        late = rt.work(item(constraints={"timeout_ms": waits}))
    for result, status in ((denied, "denied"), (failed, "failure"), (late, "timeout")):
        assert result.status == status, result
        metrics = result.metrics
        assert (metrics.files_touched, metrics.delta_size) == (3, 3), result
        assert metrics.tool_ops_count == 1
    assert not (project / "f1").exists()


@pytest.mark.req("002-8", "002-57", "002-58")
@pytest.mark.parametrize(("folders", "status"), [(100, "success"), (101, "denied")])
def test_empty_folders_count_and_the_guard_sees_them(
    tmp_path: Path, folders: int, status: str
) -> None:
    project = make_project(tmp_path / "p")
    make = f"for i in $(seq {folders}); do mkdir d$i; done"
    add_agent(project, make, "true")
    with opened(project) as rt:
        result = rt.work(item())
        assert result.status == status, result
        assert result.metrics.delta_size == folders
        # The guard ends it before the second call, not the admission after it.
        assert result.metrics.tool_ops_count == (2 if status == "success" else 1)
        if status == "denied":
            assert result.denial_reason == "Exceeded max delta size: 101 > 100"
            add_agent(
                project, make
            )  # one call: the guard counts before it, and the admission after
            alone = rt.work(item())
            assert alone.denial_reason == "Exceeded max delta size: 101 > 100"


# -- outputs --------------------------------------------------------------------------------------


@pytest.mark.req("002-14")
@pytest.mark.parametrize(
    "script",
    [
        "ln -s /etc/hostname out",
        "ln -s real out; printf x > real",
        "rm -rf folder; ln -s /etc folder",
    ],
)
def test_a_link_is_no_output_file(tmp_path: Path, script: str) -> None:
    project = make_project(tmp_path / "p", {"folder/x": "1"})
    add_agent(project, script)
    name = "/folder/hostname" if "folder" in script else "/out"
    with opened(project) as rt:
        result = rt.work(item(output_files=[name]))
        assert result.status == "failure"
        assert result.error is not None and result.error.startswith("Output file")
        add_agent(project, "mkdir -p folder; printf x > out; printf x > folder/hostname")
        assert rt.work(item(output_files=[name])).status == "success"


@pytest.mark.req("002-13")
def test_an_input_file_lies_in_the_project(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"real": "1"})
    (project / "outside").symlink_to("/etc/hostname")
    (project / "inside").symlink_to("real")
    add_agent(project, "printf x > new")
    with opened(project) as rt:
        assert rt.work(item(input_files=["/outside"])).error == "Input file missing: /outside"
        assert rt.work(item(input_files=["/inside"])).status == "success"


def test_the_budget_is_in_the_receipt(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "printf x > new")
    budget = {"time_estimate_ms": 1_000, "complexity": "medium"}
    with opened(project) as rt:
        result = rt.work(item(budget=budget))
        said = read_work_receipt(
            json.loads(Path(result.receipt_path).read_bytes()), rt.keyring.trusted
        )
        assert said["budget"] == budget


# -- replay ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["the project", "a full folder", "a folder with a git link"])
def test_restore_empties_no_folder_of_anybody(tmp_path: Path, where: str) -> None:
    project = make_project(tmp_path / "p", {"a": "1"})
    add_agent(project, "printf x > new")
    full = project if where == "the project" else tmp_path / "full"
    if full != project:
        full.mkdir()
        (full / (".git" if "git" in where else "mine")).write_text("mine")
    with opened(project) as rt:
        done = rt.work(item())
        before = _listing(project)
        run_id = _run_of(rt, done.receipt_id)
        with pytest.raises(Refused) as refused:
            rt.work_items.restore(run_id, full)
        refusal = "REPLAY_IN_PROJECT" if full == project else "RESTORE_NOT_EMPTY"
        assert refused.value.code == refusal
        assert rt.work_items.restore(run_id, tmp_path / "new") == rt.work_items.records.before_hash(
            run_id
        )
    assert _listing(project) == before
    if full != project:
        assert len(os.listdir(full)) == 1


@pytest.mark.parametrize("where", [".", "below", ".."])
def test_a_replay_never_works_on_the_project(tmp_path: Path, where: str) -> None:
    project = make_project(tmp_path / "p", {"below/a": "1"})
    add_agent(project, "printf x > new")
    with opened(project) as rt:
        done = rt.work(item())
        before = _listing(project)
        with pytest.raises(Refused) as refused:
            rt.work_items.again(_run_of(rt, done.receipt_id), project / where)
        assert refused.value.code == "REPLAY_IN_PROJECT"
        assert _listing(project) == before
        # What an undo needs is kept all the same.
        assert rt.work_items.undo(done.receipt_id).status == "success"


def _run_of(rt: Runtime, receipt_id: str) -> str:
    run_id = rt.work_items.records.of_receipt(receipt_id)
    assert run_id is not None
    return run_id
