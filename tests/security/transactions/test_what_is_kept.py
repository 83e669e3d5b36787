"""What is kept of transactions: within bounds, on record, and never at the cost of a decision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Result, Runtime
from actum.errors import Refused
from actum.evidence.records.audit import Decision
from common.settings import add_settings
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox


def _reopen(jail: Jail, settings: str) -> None:
    jail.close()
    add_settings(jail.root, f"[workspace]\n{settings}")
    jail.runtime = Runtime.open(jail.root)


def _names(jail: Jail) -> list[str]:
    return [kept.execution_id for kept in jail.runtime.transactions.all()]


def _passed(jail: Jail) -> bool:
    return all(finding.passed for finding in jail.runtime.verifier.verify_all())


def _write(jail: Jail, name: str, count: int = 1) -> Result:
    result = jail.sh(f"head -c {count} /dev/zero > {name}")
    assert result.workspace is not None
    assert result.workspace.state == "committed"
    return result


def test_the_oldest_go_first_and_the_newest_can_still_be_undone(own_jail: Jail) -> None:
    _reopen(own_jail, "keep = 2\n")
    done = [_write(own_jail, f"file-{number}") for number in range(4)]
    transactions = own_jail.runtime.transactions
    transactions.recover()
    assert sorted(_names(own_jail)) == sorted(each.execution_id for each in done[2:])
    with pytest.raises(Refused, match="or the limit") as refused:
        transactions.find(done[0].execution_id)
    assert refused.value.code == "CHANGES_REMOVED"
    transactions.undo(transactions.find(done[3].execution_id))
    assert not (own_jail.work / "file-3").exists()
    assert (own_jail.work / "file-0").exists()
    assert _passed(own_jail)


def test_changes_that_wait_never_go(own_jail: Jail) -> None:
    _reopen(own_jail, "keep = 0\nkeep_mb = 0\n")
    held = own_jail.sh("echo x > new", changes="hold")
    _write(own_jail, "other")
    transactions = own_jail.runtime.transactions
    transactions.recover()
    assert _names(own_jail) == [held.execution_id]
    kept = transactions.find(held.execution_id)
    assert transactions.decide(kept, commit=True) == "committed"
    transactions.recover()
    assert _names(own_jail) == []
    assert _passed(own_jail)


def test_the_commands_say_what_was_removed(own_jail: Jail) -> None:
    _reopen(own_jail, "keep = 0\n")
    done = _write(own_jail, "file")
    own_jail.close()
    for command in ("diff", "undo"):
        refused = _actum(own_jail, command, done.execution_id)
        assert refused.returncode == 3, refused
        assert "or the limit" in refused.stderr + refused.stdout


def test_changes_that_wait_are_listed_with_age_and_size(own_jail: Jail) -> None:
    held = own_jail.sh("head -c 1048576 /dev/urandom > new", changes="hold")
    own_jail.close()
    (listed,) = json.loads(_actum(own_jail, "diff", "--json").stdout)["changes"]
    assert listed["execution_id"] == held.execution_id
    assert listed["bytes"] >= 1 << 20
    assert listed["begun_at"].startswith("20")
    assert "1.0 MiB" in _actum(own_jail, "diff").stdout


def _actum(jail: Jail, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("actum"), *words],
        cwd=jail.root,
        capture_output=True,
        text=True,
        check=False,
    )


def _copy(source: Path, target: Path) -> None:
    """An ordinary user cannot read what the overlay has left in its `work`; the rest is copied."""
    subprocess.run(["cp", "-a", source, target], check=False, stderr=subprocess.DEVNULL)
    assert sorted(os.listdir(source)) == sorted(os.listdir(target))


# -- verification


@pytest.fixture
def kept(own_jail: Jail) -> Iterator[tuple[Jail, Path]]:
    """A transaction that was committed; the control: it verifies."""
    (own_jail.work / "file").write_text("before")
    result = own_jail.sh("echo after > file; mkdir d; echo x > d/new")
    folder = own_jail.root / ".actum" / "transactions" / f"{result.execution_id}-1"
    assert _passed(own_jail)
    yield own_jail, folder


def _broken(jail: Jail) -> list[str]:
    return [each.subject for each in jail.runtime.verifier.verify_all() if not each.passed]


@pytest.mark.parametrize("name", ["record.json", "0/backward.json"])
def test_a_changed_file_is_found(kept: tuple[Jail, Path], name: str) -> None:
    jail, folder = kept
    file = folder / name
    honest = file.read_bytes()
    changed = [
        honest[:-1],
        honest + b" ",
        honest.replace(b'"committed"', b'"undone"') if b'"committed"' in honest else b"[]",
        b"",
    ]
    for content in changed:
        file.write_bytes(content)
        assert any(name in subject for subject in _broken(jail)), content[:80]
    file.unlink()
    assert any(name in subject for subject in _broken(jail))
    file.symlink_to("/dev/null")
    assert any(name in subject for subject in _broken(jail))
    file.unlink()
    file.write_bytes(honest)
    assert _broken(jail) == []


def test_a_missing_and_a_foreign_transaction_are_found(kept: tuple[Jail, Path]) -> None:
    jail, folder = kept
    away = folder.with_name(".aside")
    os.rename(folder, away)
    assert any(folder.name in subject for subject in _broken(jail))
    os.rename(away, folder)
    foreign = folder.with_name("00000000-0000-0000-0000-000000000000-1")
    subprocess.run(["cp", "-a", folder, foreign], check=True)
    assert any(foreign.name in subject for subject in _broken(jail))


def test_every_later_decision_is_on_record(kept: tuple[Jail, Path]) -> None:
    jail, folder = kept
    transactions = jail.runtime.transactions
    honest = (folder / "record.json").read_bytes()
    transactions.undo(transactions.find(folder.name))
    assert _broken(jail) == []
    (folder / "record.json").write_bytes(honest)  # as if it had not been undone
    assert any(folder.name in subject for subject in _broken(jail))


def test_a_discarded_transaction_that_is_put_back_is_found(own_jail: Jail, tmp_path: Path) -> None:
    held = own_jail.sh("echo x > new", changes="hold")
    transactions = own_jail.runtime.transactions
    kept = transactions.find(held.execution_id)
    _copy(kept.folder, tmp_path / "copy")
    assert transactions.decide(kept, commit=False) == "discarded"
    assert _broken(own_jail) == []
    _copy(tmp_path / "copy", kept.folder)
    assert any(kept.name in subject for subject in _broken(own_jail))


def test_a_changed_content_is_not_put_back(kept: tuple[Jail, Path]) -> None:
    jail, folder = kept
    old = next((folder / "0" / "old").iterdir())
    old.write_text("forged")
    transactions = jail.runtime.transactions
    with pytest.raises(Refused, match="was changed after the commit"):
        transactions.undo(transactions.find(folder.name))
    assert (jail.work / "file").read_text() == "after\n"


def test_a_changed_way_back_is_not_followed(kept: tuple[Jail, Path]) -> None:
    jail, folder = kept
    backward = folder / "0" / "backward.json"
    backward.write_text(backward.read_text().replace('"mode": 420', '"mode": 511'))
    transactions = jail.runtime.transactions
    with pytest.raises(Refused, match="does not match the record"):
        transactions.undo(transactions.find(folder.name))


def test_a_copy_leaves_a_commit_that_was_begun_to_the_original(
    kept: tuple[Jail, Path], tmp_path: Path
) -> None:
    jail, folder = kept
    jail.close()
    # As if the process had been killed when everything but the removal of the intent was done.
    program = (
        "import os, sys; from pathlib import Path\n"
        "from actum.workspace.kept_changes import undo\n"
        "from actum.workspace.transaction_record import Kept\n"
        "os.unlink = lambda *words, **more: os._exit(9)\n"
        "undo(Kept.find(Path(sys.argv[1]), sys.argv[2]))"
    )
    words = [sys.executable, "-c", program, str(folder.parent.parent), folder.name]
    assert subprocess.run(words, check=False).returncode == 9
    assert (folder / "intent.json").exists()
    (jail.work / "file").write_text("newer")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", jail.root, copy], check=True)
    with Runtime.open(copy):
        pass
    assert (jail.work / "file").read_text() == "newer"
    assert (copy / ".actum" / "transactions" / folder.name / "intent.json").exists()
    with Runtime.open(jail.root):
        pass
    assert not (folder / "intent.json").exists()


def test_a_denial_holds_though_the_process_was_killed_before_the_removal(own_jail: Jail) -> None:
    result = own_jail.sh("echo >> actum.toml", cwd=own_jail.root)
    assert result.workspace is not None
    runtime = own_jail.runtime
    runtime.approvals.decide(result.workspace.request_id, Decision.DENY, by="user:boss", why="no")
    kept = runtime.transactions.find(result.execution_id)
    with pytest.raises(Refused, match="denied"):
        runtime.transactions.decide(kept, commit=True)
    assert runtime.transactions.decide(kept, commit=False) == "discarded"
