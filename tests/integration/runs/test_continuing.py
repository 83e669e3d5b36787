"""Continue, override, fork: a persisted contract is changed only by the flag that says so."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.terminal import Terminal
from actum import Runtime
from actum.errors import Refused
from actum.runs.durable_runs import RunMismatch

from .runs_project import add_agent, item, make_project, metadata, work_file


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    folder = make_project(tmp_path / "p")
    add_agent(folder, "echo one > one.txt", number=1)
    add_agent(folder, "test -e fixed.txt && echo two > two.txt", number=2)
    with Runtime.open(folder, pool=False) as runtime:
        yield runtime


@pytest.fixture
def failed(rt: Runtime) -> str:
    """A run whose first item is committed and whose second one failed."""
    source = work_file(item(id="one"), item(id="two", agent_id="agent-2", dependencies=["one"]))
    run_id = rt.runs.submit(source, environ={}).run_id
    rt.runs.worker().drain()
    run = rt.runs.get(run_id)
    assert (run.status.value, run.error_code) == ("failed", "ITEMS_NOT_SUCCEEDED")
    return run_id


def ends(rt: Runtime, run_id: str) -> list[tuple[str | None, str, str | None]]:
    return [
        (step.item_id, step.state.value, step.status and step.status.value)
        for step in rt.runs.ledger.steps(run_id)
    ]


@pytest.mark.req("003-3", "003-81", "003-61")
def test_a_continued_run_keeps_its_contract_and_repeats_no_committed_item(
    rt: Runtime, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rt.runs.get(failed)
    monkeypatch.setenv("AGENT_FS_MAX_FILES_PER_STEP", "3")
    (rt.settings.root / "fixed.txt").write_text("")
    queued = rt.runs.resume(failed)
    assert (queued.status.value, queued.metadata, queued.seal) == (
        "queued",
        before.metadata,
        before.seal,
    )
    rt.runs.worker().drain()
    assert rt.runs.get(failed).status.value == "complete"
    assert ends(rt, failed) == [
        ("one", "ended", "success"),
        ("two", "ended", "failure"),
        ("two", "ended", "success"),
    ]
    with pytest.raises(Refused) as refused:
        rt.runs.resume(failed)
    assert refused.value.code == "RUN_COMPLETE"


@pytest.mark.req("003-84", "003-87")
def test_another_configuration_is_refused_with_every_field_and_changes_nothing(
    rt: Runtime, failed: str
) -> None:
    before = rt.runs.get(failed)
    with pytest.raises(RunMismatch) as mismatch:
        rt.runs.resume(failed, config={"profile": "ci"})
    document: Any = mismatch.value.document()
    assert [(each["field"], each["persisted"], each["requested"]) for each in document["diff"]] == [
        ("profile", "full", "ci"),
        ("lightValidationMode", "enforce", "off"),
        ("heavyValidationMode", "enforce", "off"),
        ("maxRuntimeCorrectionAttempts", 5, 0),
        ("maxHeavyCorrectionAttempts", 3, 0),
        ("correctionPolicyMode", "enforce", "warn"),
        ("correctionConvergenceMode", "enforce", "warn"),
        ("plannerTimeoutMs", 120_000, 5_000),
    ]
    assert rt.runs.get(failed) == before

    said = Terminal(rt.settings.root).actum(
        "runs", "continue", failed, "--set", "plannerTimeoutMs=5000"
    )
    assert said.code == 3
    assert "Execution contract mismatch:" in said.aside
    assert "  plannerTimeoutMs: 120000 -> 5000" in said.aside.splitlines()
    assert "--override-execution-config" in said.aside
    assert "--fork" in said.aside
    assert rt.runs.get(failed) == before
    # Equal values are no difference.
    assert rt.runs.resume(failed, config={"maxFilesPerStep": 15}).status.value == "queued"


@pytest.mark.req("003-85")
def test_an_override_changes_this_run_and_leaves_a_history(rt: Runtime, failed: str) -> None:
    before = metadata(rt.runs, failed)
    (rt.settings.root / "fixed.txt").write_text("")
    run = rt.runs.resume(failed, config={"maxFilesPerStep": 4}, override=True)
    assert (run.run_id, run.revision, run.status.value) == (failed, 2, "queued")
    after = metadata(rt.runs, failed)
    assert after["executionContractHash"] != before["executionContractHash"]
    assert after["effectiveExecutionConfig"]["maxFilesPerStep"] == 4
    assert after["executionConfig"] == after["effectiveExecutionConfig"]
    rt.runs.worker().drain()
    assert rt.runs.get(failed).status.value == "complete"
    history = [(each["revision"], each["cause"]) for each in rt.runs.ledger.revisions(failed)]
    assert history == [(1, "created"), (2, "overridden")]
    assert [step.revision for step in rt.runs.ledger.steps(failed)] == [1, 1, 2]


@pytest.mark.req("003-4", "003-86", "003-88", "003-89", "003-90")
def test_a_fork_is_a_new_run_and_the_source_stays(rt: Runtime) -> None:
    add_agent(rt.settings.root, "touch two three four", number=2)
    source = work_file(item(id="one"), item(id="two", agent_id="agent-2", dependencies=["one"]))
    failed = rt.runs.submit(source, config={"maxFilesPerStep": 2}, environ={}).run_id
    rt.runs.worker().drain()
    before, steps = rt.runs.get(failed), rt.runs.ledger.steps(failed)
    assert steps[-1].reasons == ("max_files_per_step",)
    fork = rt.runs.resume(failed, config={"profile": "smoke"}, fork=True)
    assert fork.run_id != failed
    assert (fork.status.value, fork.revision, fork.forked_from) == ("queued", 1, failed)
    assert metadata(rt.runs, fork.run_id)["effectiveExecutionConfig"]["profile"] == "smoke"
    assert (
        metadata(rt.runs, fork.run_id)["executionContractHash"]
        == "26a946c01889648e03013e7f2f4659b7aec0ad9aea5544701b6d7575e92c27aa"
    )
    rt.runs.worker().drain()
    assert rt.runs.get(fork.run_id).status.value == "complete"
    assert ends(rt, fork.run_id) == [
        ("one", "adopted", "success"),
        ("two", "adopted", "denied"),
        ("two", "ended", "success"),
    ]
    assert rt.runs.get(failed) == before
    assert rt.runs.ledger.steps(failed) == steps


def test_a_fork_needs_the_state_that_its_source_left(rt: Runtime, failed: str) -> None:
    (rt.settings.root / "one.txt").write_text("edited")
    with pytest.raises(Refused) as refused:
        rt.runs.resume(failed, fork=True)
    assert refused.value.code == "WORKSPACE_MOVED"
    assert len(rt.runs.list()) == 1


def test_both_flags_are_a_usage_error(rt: Runtime, failed: str) -> None:
    with pytest.raises(Refused):
        rt.runs.resume(failed, override=True, fork=True)
    said = Terminal(rt.settings.root).actum(
        "runs", "continue", failed, "--fork", "--override-execution-config"
    )
    assert said.code == 2


@pytest.mark.req("003-82")
def test_a_legacy_run_gets_the_same_contract_whatever_the_environment(
    rt: Runtime, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(rt.settings.home / "actum.db") as connection:
        connection.execute(
            "UPDATE agent_runs SET metadata = '{}', revision = 0, seal = NULL WHERE run_id = ?",
            (failed,),
        )
        # An older version stored no contract for it.
        connection.execute("DROP TRIGGER run_contracts_are_never_removed")
        connection.execute("DELETE FROM run_contracts")
    connection.close()
    monkeypatch.setenv("AGENT_FS_MAX_FILES_PER_STEP", "3")
    (rt.settings.root / "fixed.txt").write_text("")
    run = rt.runs.resume(failed)
    assert run.revision == 1
    found = metadata(rt.runs, failed)
    assert (
        found["executionContractHash"]
        == "eaa65ae6e4c8366fb3b20b76295914499fbe5f03f5e0c9a1b294d015badc7868"
    )
    assert found["executionContractFallbackUsed"] is False
    assert [each["cause"] for each in rt.runs.ledger.revisions(failed)] == ["attached"]
    rt.runs.worker().drain()
    assert rt.runs.get(failed).status.value == "complete"


@pytest.mark.req("003-5", "003-6", "003-91", "003-92", "003-93", "003-94", "003-95", "003-96")
def test_status_shows_the_persisted_contract_on_both_doors(rt: Runtime) -> None:
    run = rt.runs.submit(
        work_file(),
        config={"maxFilesPerStep": 4},
        environ={"AGENT_FS_MAX_FILE_BYTES": "2000"},
    )
    stored = metadata(rt.runs, run.run_id)
    shown: Any = rt.runs.status(run.run_id)["executionContract"]
    assert shown == {
        "schemaVersion": 1,
        "hash": stored["executionContractHash"],
        "determinismPolicyVersion": 1,
        "plannerPolicyVersion": 1,
        "correctionRecipeVersion": 1,
        "validationPolicyVersion": 1,
        "randomnessSeed": "forbidden:no-random-branching",
        "effectiveConfig": stored["effectiveExecutionConfig"],
        "fallbackUsed": True,
        "fallbackFields": ["maxFileBytes"],
        "verified": "OK",
    }
    terminal = Terminal(rt.settings.root)
    assert terminal.json("runs", "status", run.run_id).json["executionContract"] == shown
    lines = terminal.actum("runs", "status", run.run_id).text.splitlines()
    assert f"EXECUTION_CONTRACT_HASH={stored['executionContractHash']}" in lines
    assert "EXECUTION_CONTRACT_SCHEMA_VERSION=1" in lines
    assert "EXECUTION_CONTRACT_PLANNER_POLICY_VERSION=1" in lines
    assert "EXECUTION_CONTRACT_RANDOMNESS_SEED=forbidden:no-random-branching" in lines
    assert "EXECUTION_CONTRACT_FALLBACK_FIELDS=maxFileBytes" in lines
    assert "EXECUTION_CONFIG_maxFilesPerStep=4" in lines


def test_an_unknown_run_and_an_active_one_are_refused_by_name(rt: Runtime) -> None:
    run = rt.runs.submit(work_file(), environ={})
    for call, code in (
        (lambda: rt.runs.status("nothing"), "RUN_UNKNOWN"),
        (lambda: rt.runs.resume(run.run_id), "RUN_ACTIVE"),
        (lambda: rt.runs.resume(run.run_id, fork=True), "RUN_ACTIVE"),
        (lambda: rt.runs.validate(run.run_id), "RUN_NOT_COMPLETE"),
    ):
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.code == code
    assert rt.runs.cancel(run.run_id).status.value == "cancelled"
    with pytest.raises(Refused) as refused:
        rt.runs.cancel(run.run_id)
    assert refused.value.code == "RUN_ENDED"
