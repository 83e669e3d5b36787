"""What an MCP server changes: a transaction of the call, or of the server where that is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result, Runtime
from actum.capture.model import Workspace
from actum.evidence.records.audit import Decision
from hostile.jail import until

from .project import small
from .test_calls import ask, said, statement

pytestmark = pytest.mark.sandbox

APART = '\n[workspace]\nchanges = "transaction"\n'
DIRECT = '\n[workspace]\nchanges = "direct"\n'


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    """The server lives for one call."""
    with small(tmp_path / "project", settings=APART) as runtime:
        yield runtime


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Runtime]:
    with small(tmp_path / "project", settings=APART, stateful=True) as runtime:
        yield runtime


def write(rt: Runtime, name: str, content: str, *then: str, **more: Any) -> Result:
    return ask(rt, "misbehave", " ".join(("write", name, content, *then)), **more)


def work(rt: Runtime) -> Path:
    return rt.settings.root / "work"


def workspace(result: Result) -> Workspace:
    assert result.workspace is not None
    return result.workspace


def of_server(rt: Runtime, call: Result) -> dict[str, Any]:
    """What the receipt of the call's server says."""
    return statement(rt, statement(rt, call.receipt_id)["parent_receipt"])


# -- a server for one call ------------------------------------------------------------------


def test_each_call_is_a_transaction(rt: Runtime) -> None:
    (work(rt) / "file").write_text("before")
    result = write(rt, "file", "after")
    assert said(result) == "written"
    assert (workspace(result).state, workspace(result).modified) == ("committed", 1)
    assert (work(rt) / "file").read_text() == "after"
    assert statement(rt, result.receipt_id)["workspace"]["state"] == "committed"
    # Its changes are the call's, so that they are on record once.
    assert "workspace" not in of_server(rt, result)
    rt.transactions.undo(rt.transactions.find(result.execution_id))
    assert (work(rt) / "file").read_text() == "before"


def test_a_call_that_changes_nothing_says_so(rt: Runtime) -> None:
    assert workspace(ask(rt, "echo", "x")).state == "unchanged"
    assert rt.transactions.all() == ()


@pytest.mark.parametrize("wanted", ["hold", "discard"])
def test_a_caller_may_look_first_or_drop_it(rt: Runtime, wanted: str) -> None:
    result = write(rt, "file", "x", changes=wanted)
    assert workspace(result).state == {"hold": "held", "discard": "discarded"}[wanted]
    assert os.listdir(work(rt)) == []


@pytest.mark.parametrize(
    ("then", "more", "state"),
    [
        ("hang", {"timeout": "2s"}, "discarded"),
        ("memory", {}, "discarded"),
        ("notify", {}, "discarded"),
        ("die", {}, "committed"),
        ("error", {}, "committed"),
    ],
)
def test_what_became_of_the_call_decides(
    rt: Runtime, then: str, more: dict[str, Any], state: str
) -> None:
    result = write(rt, "file", "x", then, **more)
    assert result.outcome is not Outcome.SUCCEEDED
    assert workspace(result).state == state
    assert (work(rt) / "file").exists() is (state == "committed")


def test_a_name_that_governs_is_held_until_it_is_approved(rt: Runtime) -> None:
    result = write(rt, ".envrc", "x")
    found = workspace(result)
    assert (found.state, found.why) == ("held", (str(work(rt) / ".envrc"),))
    assert not (work(rt) / ".envrc").exists()
    request = rt.approvals.decide(found.request_id, Decision.ALLOW, by="user:other", why="known")
    assert rt.transactions.approved(request) == "committed"
    assert (work(rt) / ".envrc").read_text() == "x"


def test_a_file_of_the_call_is_collected_from_its_layers(rt: Runtime) -> None:
    outputs = {"outputs.output_files": [str(work(rt) / "file")]}
    result = write(rt, "file", "content", set=outputs)
    assert result.result is not None, result.violations
    (found,) = result.result.artifacts
    assert rt.blobs.read(found.blake3) == b"content"


# -- a server that is kept ------------------------------------------------------------------


def close(rt: Runtime) -> None:
    """End the kept servers, as the runtime does."""
    rt.services.servers._discard_ended(everything=True)


def test_the_calls_of_a_kept_server_are_one_transaction(kept: Runtime) -> None:
    first = write(kept, "one", "1")
    second = write(kept, "two", "2")
    parent = statement(kept, first.receipt_id)["parent_receipt"]
    assert statement(kept, second.receipt_id)["parent_receipt"] == parent
    assert (first.workspace, second.workspace) == (None, None)
    assert os.listdir(work(kept)) == []
    close(kept)
    assert sorted(os.listdir(work(kept))) == ["one", "two"]
    found = of_server(kept, first)
    assert (found["workspace"]["state"], found["workspace"]["created"]) == ("committed", 2)
    kept.transactions.undo(kept.transactions.find(found["execution_id"]))
    assert os.listdir(work(kept)) == []


def test_one_that_is_idle_is_committed_when_it_ends(tmp_path: Path) -> None:
    with small(tmp_path / "project", settings=APART, stateful=True, idle_s=1) as rt:
        result = write(rt, "file", "x")
        until(lambda: (work(rt) / "file").exists(), "the commit")
        until(lambda: not rt.services.servers._kept, "the seal")
        assert of_server(rt, result)["workspace"]["state"] == "committed"


def test_one_that_reaches_its_age_between_two_calls_is_committed(tmp_path: Path) -> None:
    with small(tmp_path / "project", settings=APART, stateful=True, lifetime_s=7) as rt:
        result = write(rt, "file", "x", timeout="5s")
        until(lambda: (work(rt) / "file").exists(), "the commit")
        until(lambda: not rt.services.servers._kept, "the seal")
        assert of_server(rt, result)["outcome"] == "TIMED_OUT"


def test_closing_the_runtime_commits(tmp_path: Path) -> None:
    with small(tmp_path / "project", settings=APART, stateful=True) as rt:
        write(rt, "file", "x")
        assert os.listdir(work(rt)) == []
    assert os.listdir(work(rt)) == ["file"]


@pytest.mark.parametrize(
    ("then", "more", "state"),
    [
        ("hang", {"timeout": "2s"}, "discarded"),
        ("memory", {}, "discarded"),
        ("notify", {}, "discarded"),
        ("die", {}, "committed"),
    ],
)
def test_a_call_that_is_stopped_drops_what_the_kept_server_has_changed(
    kept: Runtime, then: str, more: dict[str, Any], state: str
) -> None:
    assert said(write(kept, "before", "x")) == "written"
    result = write(kept, "half", "x", then, **more)
    assert result.outcome is not Outcome.SUCCEEDED
    assert of_server(kept, result)["workspace"]["state"] == state
    assert sorted(os.listdir(work(kept))) == (["before", "half"] if state == "committed" else [])


def test_what_the_host_changed_since_its_start_is_a_conflict(kept: Runtime) -> None:
    (work(kept) / "both").write_text("before")
    result = write(kept, "both", "servers")
    time.sleep(0.05)
    (work(kept) / "both").write_text("the host's")
    close(kept)
    found = of_server(kept, result)
    assert found["workspace"]["state"] == "conflict"
    assert (work(kept) / "both").read_text() == "the host's"
    transactions = kept.transactions
    waits = transactions.find(found["execution_id"])
    assert transactions.decide(waits, commit=True, over=True) == "committed"
    assert (work(kept) / "both").read_text() == "servers"


def test_a_governing_name_of_a_kept_server_is_held(kept: Runtime) -> None:
    result = write(kept, ".envrc", "x")
    close(kept)
    found = of_server(kept, result)["workspace"]
    assert found["state"] == "held"
    assert os.listdir(work(kept)) == []
    request = kept.approvals.decide(
        found["request_id"], Decision.DENY, by="user:other", why="unknown"
    )
    assert kept.transactions.approved(request) == "discarded"
    assert kept.transactions.all() == ()


def test_where_changes_are_direct_others_see_them_at_once(tmp_path: Path) -> None:
    with small(tmp_path / "project", settings=DIRECT, stateful=True) as rt:
        result = write(rt, "file", "x")
        assert os.listdir(work(rt)) == ["file"]
        close(rt)
        assert of_server(rt, result)["workspace"]["mode"] == "direct"


def test_a_request_may_ask_for_a_transaction_where_changes_are_direct(tmp_path: Path) -> None:
    with small(tmp_path / "project", settings=DIRECT) as rt:
        result = write(rt, "file", "x")
        assert (workspace(result).mode, os.listdir(work(rt))) == ("direct", ["file"])
        asked = {"sandbox.filesystem.changes": "transaction"}
        result = write(rt, "other", "x", set=asked)
        assert (workspace(result).mode, workspace(result).state) == ("transaction", "committed")


def test_what_a_stopped_server_did_may_be_wanted_too(tmp_path: Path) -> None:
    settings = f'{APART}on_stop = "commit"\n'
    with small(tmp_path / "project", settings=settings, stateful=True) as rt:
        result = write(rt, "half", "x", "hang", timeout="5s")
        assert of_server(rt, result)["workspace"]["state"] == "committed"
        assert os.listdir(work(rt)) == ["half"]
