"""A cover holds while the host leaves the name alone. When it is lost, the tool is ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from actum import Outcome, Result
from actum.capture.model import Workspace
from hostile.jail import Jail, until

pytestmark = pytest.mark.sandbox

#: Says that it is there, and would leave a file if nothing ended it.
WAITS = "echo up; sleep 20; echo x > late"


def _workspace(result: Result) -> Workspace:
    assert result.workspace is not None, result.violations
    return result.workspace


def _while_it_runs(act: Callable[[], None]) -> Callable[[str, bytes], None]:
    """For `on_output`: once, when the tool has said its first word."""
    done = threading.Event()

    def hear(_stream: str, _chunk: bytes) -> None:
        if not done.is_set():
            done.set()
            act()

    return hear


def _save(file: Path, fresh: Path) -> None:
    _write(file, file.read_bytes(), fresh)


def _write(file: Path, content: bytes, fresh: Path) -> None:
    """As most programs save: a new file, renamed over the old one."""
    fresh.write_bytes(content)
    os.rename(fresh, file)


def _replaced(jail: Jail) -> tuple[str, Callable[[], None]]:
    return "actum.toml", lambda: _save(jail.root / "actum.toml", jail.elsewhere / "fresh")


def _moved_away(jail: Jail) -> tuple[str, Callable[[], None]]:
    """As editors save that keep a backup: the mount goes along with the old file."""
    file = jail.root / "actum.toml"

    def save() -> None:
        content = file.read_bytes()
        os.rename(file, jail.root / "actum.toml~")
        file.write_bytes(content)

    return "actum.toml", save


def _folder_replaced(jail: Jail) -> tuple[str, Callable[[], None]]:
    rules = jail.root / "rules"

    def replace() -> None:
        os.rename(rules, jail.elsewhere / "rules")
        rules.mkdir()

    return "rules", replace


HOST = {"replaced": _replaced, "moved away": _moved_away, "a folder": _folder_replaced}


@pytest.mark.parametrize("how", HOST)
def test_a_lost_cover_ends_the_tool(own_jail: Jail, how: str) -> None:
    name, act = HOST[how](own_jail)
    result = own_jail.sh(WAITS, cwd=own_jail.root, on_output=_while_it_runs(act), timeout="1m")
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert result.reason_codes == ("COVER_LOST",)
    assert _workspace(result).covers_lost == (str(own_jail.root / name),)
    assert not (own_jail.root / "late").exists()
    assert result.result is not None
    assert str(own_jail.root / name) in (result.result.error_reason or "")


def _edited(jail: Jail) -> tuple[str, ...]:
    with (jail.root / "tools.lock").open("a") as file:
        file.write("\n")
    return ("tools.lock",)


def _added(jail: Jail) -> tuple[str, ...]:
    (jail.root / "rules" / "new").write_text("x")
    return ("rules/new",)


def _elsewhere(jail: Jail) -> tuple[str, ...]:
    (jail.root / "beside").write_text("x")
    os.rename(jail.root / "beside", jail.root / "other")
    (jail.work / "folder").mkdir()
    (jail.work / "folder").rmdir()
    return ()


EDITS = {"in place": _edited, "in a covered folder": _added, "beside": _elsewhere}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_the_host_under_a_cover_that_holds_is_a_note(own_jail: Jail, edit: str) -> None:
    names: list[str] = []
    goes_on = own_jail.root / "go"

    def act() -> None:
        names.extend(EDITS[edit](own_jail))
        goes_on.touch()

    script = "echo up; until test -e go; do sleep 0.01; done; sleep 0.3; echo x > late"
    result = own_jail.sh(script, cwd=own_jail.root, on_output=_while_it_runs(act), timeout="1m")
    assert result.outcome is Outcome.SUCCEEDED, result.result
    found = _workspace(result)
    assert found.changed_by_host == tuple(str(own_jail.root / name) for name in names)
    assert (found.why, found.covers_lost) == ((), ())
    assert (own_jail.root / "late").exists()


#: One call is enough to plant a prepared file.
_LOOPERS = """
import os
def prepare(name):
    with open(name, "w") as file: file.write("evil")
    return name
for number in range(4):
    if os.fork() == 0:
        name = prepare(f"p{number}")
        while True:
            try: os.rename(name, "actum.toml")
            except OSError: continue
            prepare(name)
print("up", flush=True)
os.wait()
"""


def test_of_twenty_saves_against_four_that_rename_in_a_loop_all_are_reported(
    own_jail: Jail,
) -> None:
    settings = own_jail.root / "actum.toml"
    honest = settings.read_bytes()
    # The control: where nothing covers the name, the call plants it.
    own_jail.outside("echo evil > p; mv p actum.toml", cwd=own_jail.root)
    assert settings.read_bytes() == b"evil\n"
    _write(settings, honest, own_jail.elsewhere / "fresh")
    for _ in range(20):
        result = own_jail.python(
            _LOOPERS,
            cwd=own_jail.root,
            timeout="1m",
            on_output=_while_it_runs(lambda: _save(settings, own_jail.elsewhere / "fresh")),
        )
        assert result.outcome is Outcome.POLICY_VIOLATION, result.result
        assert set(result.reason_codes) <= {"COVER_LOST", "POLICY_VIOLATION"}
        if settings.read_bytes() != honest:  # it has won, as most such tools do
            assert str(settings) in _workspace(result).why
            _write(settings, honest, own_jail.elsewhere / "fresh")


def test_a_sandbox_that_waits_is_covered_again(own_jail: Jail) -> None:
    """Interpreters wait in sandboxes with covers. What the host saved meanwhile is covered too."""
    settings = own_jail.root / "actum.toml"
    program = "try: open('actum.toml', 'a')\nexcept OSError as error: print(error.strerror)"
    for _ in range(6):
        result = own_jail.python(program, cwd=own_jail.root)
        assert result.outcome is Outcome.SUCCEEDED, result.result
        assert own_jail.said(result) == "Read-only file system"
        own_jail.python("pass", cwd=own_jail.root)
        _save(settings, own_jail.elsewhere / "fresh")


def test_in_a_transaction_there_is_nothing_to_lose(tmp_path: Path, probe: Path) -> None:
    jail = Jail(tmp_path, probe, transactions=True)
    settings = jail.root / "actum.toml"
    act = _while_it_runs(lambda: _save(settings, jail.elsewhere / "fresh"))
    result = jail.sh("echo up; sleep 0.5; echo x > late", cwd=jail.root, on_output=act)
    jail.close()
    assert result.outcome is Outcome.SUCCEEDED, result.result
    assert _workspace(result).mode == "transaction"
    assert _workspace(result).covers_lost == ()
    until((jail.root / "late").exists)
