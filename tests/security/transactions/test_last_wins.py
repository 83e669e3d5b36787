"""Caches and logs that two programs write at once are no conflict. Everything else is."""

from __future__ import annotations

import pytest

from actum.capture.model import Workspace
from actum.evidence.records.audit import Decision
from common.settings import add_settings
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox


@pytest.fixture
def jail(own_jail: Jail) -> Jail:
    """With a list of the project's own that would spare everything it can."""
    own_jail.close()
    add_settings(
        own_jail.root, '[workspace]\nlast_wins = ["*.log", "/out/", "build", "config", "tools"]\n'
    )
    own_jail.runtime = own_jail.runtime.open(own_jail.root)
    return own_jail


def _both(jail: Jail, *paths: str) -> Workspace:
    """A tool and the host change the same paths."""
    files = [jail.root / path for path in paths]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before\n")

    def host(_name: str, _chunk: bytes) -> None:
        for file in files:
            file.write_text("host\n")

    script = "; ".join(f"echo tool > {path}" for path in paths)
    result = jail.sh(f"{script}; echo up; sleep 1", cwd=jail.root, on_output=host)
    assert result.workspace is not None, result.violations
    return result.workspace


@pytest.mark.parametrize("path", ["a.log", "deep/er/b.log", "out/x", "x/build/y"])
def test_the_tool_wins_where_the_project_says_so(jail: Jail, path: str) -> None:
    assert _both(jail, path).state == "committed"
    assert (jail.root / path).read_text() == "tool\n"


@pytest.mark.parametrize("path", ["a.txt", "x/out/y", "log", "building/x"])
def test_elsewhere_it_is_a_conflict(jail: Jail, path: str) -> None:
    found = _both(jail, path)
    assert found.state == "conflict"
    assert found.why == (str(jail.root / path),)
    assert (jail.root / path).read_text() == "host\n"


def test_one_path_that_counts_is_enough_and_is_named_alone(jail: Jail) -> None:
    found = _both(jail, "a.log", "a.txt")
    assert found.state == "conflict"
    assert found.why == (str(jail.root / "a.txt"),)
    assert (jail.root / "a.log").read_text() == "host\n"


def test_a_branch_is_never_overwritten_whatever_it_is_called(jail: Jail) -> None:
    (jail.root / ".git").mkdir()
    assert _both(jail, ".git/refs/heads/build").state == "conflict"
    for name in ("HEAD", "objects", "refs"):
        (jail.root / "bare" / name).mkdir(parents=True)
    assert _both(jail, "bare/refs/heads/build").state == "conflict"


def test_a_governing_name_is_held_and_then_a_conflict(jail: Jail) -> None:
    held = _both(jail, "agents/build/x.log")
    assert held.state == "held"
    request = jail.runtime.approvals.decide(
        held.request_id, Decision.ALLOW, by="user:boss", why="test"
    )
    assert jail.runtime.transactions.approved(request) == "conflict"
    assert (jail.root / "agents/build/x.log").read_text() == "host\n"


def test_the_default_spares_caches(own_jail: Jail) -> None:
    assert _both(own_jail, "src/__pycache__/m.pyc", "debug.log").state == "committed"
    assert _both(own_jail, "build/x").state == "conflict"
    assert _both(own_jail, "src/log.py").state == "conflict"


def test_an_undo_brings_back_what_the_host_had(jail: Jail) -> None:
    file = jail.root / "a.log"
    _both(jail, "a.log")
    transactions = jail.runtime.transactions
    (kept,) = transactions.all()
    transactions.undo(kept)
    assert file.read_text() == "host\n"
