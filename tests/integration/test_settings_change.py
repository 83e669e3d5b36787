"""Settings that change while a project is open: the next execution does not run."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from actum import Outcome, Refused, Result
from common.settings import approve
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_MORE = "\n[egress]\nmax_mb = 10000\n"


def save(jail: Jail, text: str) -> None:
    """As an editor does it: a new file, renamed over the old one."""
    fresh = jail.elsewhere / "actum.toml"
    fresh.write_text(text)
    os.rename(fresh, jail.root / "actum.toml")


def settings(jail: Jail) -> str:
    return (jail.root / "actum.toml").read_text()


def test_saved_by_a_rename_while_a_tool_runs_the_next_execution_is_refused(own_jail: Jail) -> None:
    results: list[Result] = []
    begun = threading.Event()
    # A part of the project that the tool can only read shows the host's files themselves.
    script = "echo begun; while [ ! -e ../go ]; do sleep 0.01; done; echo done"

    def run() -> None:
        results.append(own_jail.sh(script, on_output=lambda _stream, _chunk: begun.set()))

    running = threading.Thread(target=run)
    running.start()
    assert begun.wait(60)
    before = settings(own_jail)
    save(own_jail, before + _MORE)
    refused = own_jail.sh("touch ran")
    (own_jail.root / "go").touch()
    running.join()
    assert own_jail.said(results[0]) == "begun\ndone"  # it began under the approved settings
    assert (refused.outcome, refused.reason_codes) == (Outcome.REJECTED, ("SETTINGS_CHANGED",))
    assert [violation.field for violation in refused.violations] == ["egress.max_mb"]
    assert not (own_jail.work / "ran").exists()
    save(own_jail, before)
    assert own_jail.sh("true").ok


@pytest.mark.parametrize("how", ["in place", "rename", "gone", "malformed"])
def test_every_kind_of_change_is_noticed_by_a_process_that_stays_open(
    own_jail: Jail, how: str
) -> None:
    before = settings(own_jail)
    assert own_jail.sh("true").ok
    assert own_jail.sh("true").ok
    file = own_jail.root / "actum.toml"
    if how == "in place":
        # As long as before, with its old times put back.
        stamp = file.stat()
        file.write_text(before.replace("docker = false", "docker =  true"))
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        assert file.stat().st_size == stamp.st_size
    elif how == "rename":
        save(own_jail, before + _MORE)
    elif how == "gone":
        file.unlink()
    else:
        save(own_jail, "[runners\n")
    assert own_jail.sh("true").reason_codes == ("SETTINGS_CHANGED",)
    save(own_jail, before)
    assert own_jail.sh("true").ok


def test_a_limit_of_this_host_may_change_meanwhile(own_jail: Jail) -> None:
    save(own_jail, settings(own_jail) + "\n[limits]\nmax_queued = 3\n")
    assert own_jail.sh("true").ok


def test_what_is_approved_meanwhile_asks_for_a_process_that_has_read_it(own_jail: Jail) -> None:
    """A process never goes on with other settings than the approved ones."""
    save(own_jail, settings(own_jail) + '\n[network]\napis = ["api.test"]\n')
    approve(own_jail.root)
    (violation,) = own_jail.sh("true").violations
    assert violation.code == "SETTINGS_CHANGED"
    assert "Open the project again" in violation.message


def test_a_session_takes_no_more_calls(own_jail: Jail) -> None:
    with own_jail.runtime.python_session(cwd=own_jail.work) as session:
        assert session.run("1 + 1").output == 2
        save(own_jail, settings(own_jail) + _MORE)
        assert session.run("1 + 1").reason_codes == ("SETTINGS_CHANGED",)


def test_a_work_item_is_refused_as_a_whole(own_jail: Jail) -> None:
    agents = own_jail.root / "agents"
    agents.mkdir()
    (agents / "agent-1.yaml").write_text(
        '{"agent_id": "agent-1", "steps": [{"tool": "shell", "stdin": "touch ran"}]}'
    )
    item = {"id": "one", "agent_id": "agent-1", "description": "x", "dependencies": []}
    save(own_jail, settings(own_jail) + _MORE)
    with pytest.raises(Refused) as refused:
        own_jail.runtime.work(item)
    assert refused.value.code == "SETTINGS_CHANGED"
    assert not list(Path(own_jail.root).rglob("ran"))
    assert not (own_jail.root / ".actum/work").exists()
