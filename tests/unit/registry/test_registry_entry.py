"""What may be used: only what is pinned, unchanged, active and of each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actum.contract.model import RunnerKind
from actum.errors import Refused
from actum.registry import digest
from actum.registry.approval_workflow import approve, block, deprecate, unblock
from actum.registry.lock import read_lock, write_lock
from actum.registry.model import AdapterStatus, ToolStatus
from actum.registry.registry import Registry
from actum.registry.selection import Task
from actum.registry.ship import ship
from actum.store.keys import Keyring

DECISION = {"by": "user:ada", "evidence": "REV-7", "date": "2026-11-15"}
Edit = Callable[[str, str, str], None]


def refusal(registry: Registry, tool: str, adapter: str | None = None, **more: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        registry.entry(tool, adapter, **more)
    return refused.value


@pytest.mark.req("000-136", "000-173", "000-174")
@pytest.mark.parametrize("tool", ["TL-003", "ripgrep"])
def test_an_approved_tool_and_its_only_active_adapter_are_found_by_id_and_by_name(
    pinned: Any, tool: str
) -> None:
    entry = pinned.registry().entry(tool, None)
    assert (entry.tool.tool_id, entry.adapter.adapter_id) == ("TL-003", "ADP-001")
    assert entry.adapter.status is AdapterStatus.ACTIVE
    assert entry.tool_ref.pin == digest.folder_digest(pinned.folder("ripgrep"))
    assert entry.pin.adapters == {"ADP-001": "1.0.0"}


@pytest.mark.req("000-3", "000-173")
@pytest.mark.parametrize("tool", ["TL-999", "ripgrap", "../tools/ripgrep", ""])
def test_a_tool_that_does_not_exist_is_refused(pinned: Any, tool: str) -> None:
    assert refusal(pinned.registry(), tool).code == "TOOL_UNKNOWN"


def test_a_misspelt_tool_is_answered_with_what_was_meant(pinned: Any) -> None:
    assert "ripgrep" in refusal(pinned.registry(), "ripgerp").remedy


def test_a_tool_on_disk_has_no_right_to_run_until_it_is_approved(repository: Any) -> None:
    refused = refusal(repository.registry(), "ripgrep")
    assert refused.code == "TOOL_NOT_APPROVED"
    assert "actum tools approve TL-003" in refused.remedy
    repository.approve("TL-003")
    entry = repository.registry().entry("ripgrep", None)
    assert (entry.pin.approver, entry.pin.date, entry.pin.evidence) == (
        "user:ada",
        "2026-11-15",
        "REV-7",
    )
    assert entry.tool.scope.commands == ("rg",)
    assert (entry.tool.scope.network, entry.tool.scope.hosts) == (False, ())
    assert entry.tool.permissions.outbound == ()
    assert refusal(repository.registry(), "git").code == "TOOL_NOT_APPROVED"


def every_file() -> list[str]:
    from actum.registry import ship as shipped

    folder = Path(shipped.__file__).parent / "shipped" / "ripgrep"
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.req("000-189")
@pytest.mark.parametrize("path", every_file())
@pytest.mark.parametrize("change", ["edit", "same-size edit", "remove", "rename", "mode"])
def test_any_change_of_any_file_is_refused_by_name_until_approved_again(
    pinned: Any, path: str, change: str
) -> None:
    registry = pinned.registry()
    registry.entry("ripgrep", None)
    file = pinned.folder("ripgrep") / path
    content = file.read_bytes()
    match change:
        case "edit":
            file.write_bytes(content + b"\n# more\n")
        case "same-size edit":
            file.write_bytes(content[:-1] + b" ")
        case "remove":
            file.unlink()
        case "rename":
            file.rename(file.with_name("renamed.txt"))
        case "mode":
            file.chmod(0o755)
    for asked in (registry, pinned.registry()):  # with a warm cache, and with none
        refused = refusal(asked, "TL-003")
        assert refused.code == "TOOL_CHANGED"
        assert path in refused.message


@pytest.mark.req("000-189")
def test_an_added_file_is_refused_until_approved_again(pinned: Any) -> None:
    registry = pinned.registry()
    registry.entry("ripgrep", None)
    (pinned.folder("ripgrep") / "fixtures" / "more.txt").write_text("more")
    refused = refusal(registry, "ripgrep")
    assert (refused.code, "more.txt (added)" in refused.message) == ("TOOL_CHANGED", True)
    pinned.approve("TL-003")
    assert registry.entry("ripgrep", None).pin.files["fixtures/more.txt"]


@pytest.mark.req("000-189")
def test_an_undone_change_is_accepted_again(pinned: Any) -> None:
    registry = pinned.registry()
    file = pinned.folder("ripgrep") / "README.md"
    content = file.read_bytes()
    file.write_bytes(b"other")
    assert refusal(registry, "ripgrep").code == "TOOL_CHANGED"
    file.write_bytes(content)
    assert registry.entry("ripgrep", None).tool.tool_id == "TL-003"


def test_a_removed_folder_is_an_unknown_tool(pinned: Any, tmp_path: Path) -> None:
    pinned.folder("ripgrep").rename(tmp_path / "gone")
    assert refusal(pinned.registry(), "TL-003").code == "TOOL_UNKNOWN"


def test_a_second_look_hashes_nothing_again_and_an_edit_is_still_noticed(
    pinned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    read_folder = digest.read_folder
    monkeypatch.setattr(digest, "read_folder", lambda f: reads.append(f) or read_folder(f))
    # As if the files were a day old: a file of this very clock tick is rightly not kept.
    monkeypatch.setattr(digest, "file_clock_ns", lambda now=digest.file_clock_ns: now() + 10**12)
    registry = pinned.registry()
    first = registry.entry("ripgrep", None)
    assert registry.entry("ripgrep", None).tool is first.tool
    assert len(reads) == 1
    (pinned.folder("ripgrep") / "README.md").write_text("other")
    assert refusal(registry, "ripgrep").code == "TOOL_CHANGED"
    assert len(reads) == 2


def test_a_file_of_the_current_clock_tick_is_hashed_again(
    pinned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    read_folder = digest.read_folder
    monkeypatch.setattr(digest, "read_folder", lambda f: reads.append(f) or read_folder(f))
    newest = max(os.stat(p).st_ctime_ns for p in pinned.folder("ripgrep").rglob("*"))
    monkeypatch.setattr(digest, "file_clock_ns", lambda: newest)
    registry = pinned.registry()
    registry.entry("ripgrep", None)
    registry.entry("ripgrep", None)
    assert len(reads) == 2


@pytest.mark.req("000-173")
@pytest.mark.parametrize("decide", [deprecate, block])
def test_a_deprecated_or_blocked_tool_does_not_run_until_approved_again(
    pinned: Any, decide: Callable[..., object]
) -> None:
    decide(pinned.root, pinned.keyring, "TL-003", **DECISION)
    assert refusal(pinned.registry(), "ripgrep", "ADP-001").code == "TOOL_NOT_ACTIVE"
    pinned.approve("TL-003")
    if decide is block:  # which an approval alone does not lift
        assert refusal(pinned.registry(), "ripgrep", "ADP-001").code == "TOOL_NOT_ACTIVE"
        unblock(pinned.root, pinned.keyring, "TL-003", **DECISION)
    assert pinned.registry().entry("ripgrep", None).pin.status is ToolStatus.ACTIVE


@pytest.mark.req("000-173", "000-191")
@pytest.mark.parametrize("status", ["deprecated", "blocked"])
def test_the_stricter_status_of_file_and_pin_wins(repository: Any, edit: Edit, status: str) -> None:
    edit("ripgrep/tool.yaml", "status: active", f"status: {status}")
    repository.approve("TL-003")
    refused = refusal(repository.registry(), "ripgrep")
    assert (refused.code, status in refused.message) == ("TOOL_NOT_ACTIVE", True)


@pytest.mark.req("000-174")
def test_an_unknown_adapter_is_refused_with_those_that_exist(pinned: Any) -> None:
    refused = refusal(pinned.registry(), "ripgrep", "ADP-999")
    assert (refused.code, "ADP-001" in refused.remedy) == ("ADAPTER_UNKNOWN", True)


@pytest.mark.req("000-174")
def test_an_adapter_of_another_tool_is_refused_by_the_name_of_its_tool(pinned: Any) -> None:
    refused = refusal(pinned.registry(), "ripgrep", "ADP-011")
    assert (refused.code, "shell (TL-010)" in refused.message) == ("ADAPTER_MISMATCH", True)


@pytest.mark.req("000-174")
@pytest.mark.parametrize(
    "approved",
    [{"adapters": {"ADP-001": "0.9.0"}}, {"adapters": {}}, {"version": "0.9.0"}],
)
def test_an_adapter_that_was_not_approved_in_this_version_is_refused(
    pinned: Any, approved: dict[str, Any]
) -> None:
    from dataclasses import replace

    lock = read_lock(pinned.root, pinned.keyring.trusted)
    lock = replace(lock, pins=(replace(lock.pins[0], **approved),))
    write_lock(pinned.root, lock, pinned.keyring.signer)
    assert refusal(pinned.registry(), "ripgrep", "ADP-001").code == "ADAPTER_VERSION_MISMATCH"


def second_adapter(repository: Any, **changes: str) -> None:
    folder = repository.folder("ripgrep") / "adapters"
    text = (folder / "ripgrep-search.yaml").read_text().replace("ADP-001", "ADP-101")
    for old, new in changes.items():
        assert f"{old}: " in text
        lines = [
            f"{line[: len(line) - len(line.lstrip())]}{old}: {new}"
            if line.lstrip().startswith(f"{old}: ")
            else line
            for line in text.splitlines()
        ]
        text = "\n".join(lines) + "\n"
    (folder / "second.yaml").write_text(text)


@pytest.mark.parametrize("status", ["experimental", "deprecated"])
def test_only_an_active_adapter_is_chosen_automatically_others_by_explicit_id(
    repository: Any, status: str
) -> None:
    second_adapter(repository, status=status)
    repository.approve("TL-003")
    registry = repository.registry()
    assert registry.entry("ripgrep", None).adapter.adapter_id == "ADP-001"
    chosen = registry.entry("ripgrep", "ADP-101")
    assert chosen.adapter_ref.status == status


def test_without_an_active_adapter_none_is_guessed(repository: Any, edit: Edit) -> None:
    edit("ripgrep/adapters/ripgrep-search.yaml", "status: active", "status: experimental")
    repository.approve("TL-003")
    refused = refusal(repository.registry(), "ripgrep")
    assert (refused.code, "ADP-001" in refused.message) == ("ADAPTER_AMBIGUOUS", True)


def test_of_several_active_adapters_none_is_guessed(repository: Any) -> None:
    second_adapter(repository)
    repository.approve("TL-003")
    refused = refusal(repository.registry(), "ripgrep")
    assert refused.code == "ADAPTER_AMBIGUOUS"
    assert "ADP-001" in refused.message and "ADP-101" in refused.message


def test_of_several_active_adapters_the_one_that_serves_the_operation_is_chosen(
    repository: Any,
) -> None:
    second_adapter(repository, executable="rga")
    repository.approve("TL-003")
    registry = repository.registry()
    for _ in range(3):
        assert (
            registry.entry("ripgrep", None, task=Task(operation="rga")).adapter.adapter_id
            == "ADP-101"
        )
        assert (
            registry.entry("ripgrep", None, task=Task(operation="rg")).adapter.adapter_id
            == "ADP-001"
        )
    assert refusal(registry, "ripgrep", task=Task(operation="other")).code == "ADAPTER_AMBIGUOUS"


@pytest.mark.req("000-189")
def test_a_clone_has_the_digest_of_the_original_whatever_its_times_and_owners(
    pinned: Any, tmp_path: Path
) -> None:
    ship(tmp_path / "clone", RunnerKind.LOCAL)
    copy = tmp_path / "clone" / "ripgrep"
    os.utime(copy / "tool.yaml", (1, 1))
    assert digest.folder_digest(copy) == digest.folder_digest(pinned.folder("ripgrep"))


def test_two_folders_that_claim_one_id_are_both_refused(repository: Any, edit: Edit) -> None:
    edit("git/tool.yaml", "tool_id: TL-001", "tool_id: TL-010")
    edit("git/adapters/git-read.yaml", "tool_id: TL-001", "tool_id: TL-010")
    assert refusal(repository.registry(), "TL-010").code == "TOOL_AMBIGUOUS"


def test_a_broken_folder_is_reported_and_leaves_the_others_usable(pinned: Any) -> None:
    (pinned.folder("git") / "tool.yaml").write_text("tool_id: [")
    tools, problems = pinned.registry().survey()
    offline = ["ripgrep", "shell", "python", "node", "snippet"]
    assert [tool.name for tool in tools] == [*offline, "pip", "npm", "fetch"]
    assert problems and all("git" in problem.file for problem in problems)
    assert pinned.registry().entry("TL-003", None).tool.name == "ripgrep"


def test_a_key_that_is_not_trusted_here_approves_nothing(pinned: Any, tmp_path: Path) -> None:
    stranger = Keyring.open(tmp_path / "stranger", create=True)
    refused = refusal(Registry(pinned.root, stranger.trusted), "ripgrep")
    assert refused.code == "LOCK_UNTRUSTED"
    assert pinned.keyring.signer.keyid in refused.message
    assert refusal(Registry(pinned.root, stranger.trusted), "nope").code == "TOOL_UNKNOWN"
    with pytest.raises(Refused) as on_top:
        approve(pinned.root, stranger, "TL-001", **DECISION)
    assert on_top.value.code == "LOCK_UNTRUSTED"
