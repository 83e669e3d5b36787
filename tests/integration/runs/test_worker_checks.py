"""A worker checks the stored contract before anything else, and refuses what does not match."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.runs.contract import check, material
from actum.runs.contract.resolve import fresh
from actum.runs.model import Run

from .runs_project import add_agent, edit_metadata, make_project, metadata, submit

KEYS = (
    "executionConfig",
    "executionContractSchemaVersion",
    "executionContractHash",
    "executionContractMaterial",
    "effectiveExecutionConfig",
    "executionContractFallbackUsed",
    "executionContractFallbackFields",
)


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    folder = make_project(tmp_path / "p")
    add_agent(folder, "echo written > written.txt")
    with Runtime.open(folder, pool=False) as runtime:
        yield runtime


class Attacked:
    """One queued run whose row is changed behind the product's back."""

    def __init__(self, rt: Runtime, run: Run) -> None:
        self.rt, self.run = rt, run
        self.intact = metadata(rt.runs, run.run_id)

    def put(self, **columns: Any) -> None:
        columns = {"status": "queued", "error_code": None, "ended_at": None, **columns}
        names = ", ".join(f"{name} = ?" for name in columns)
        with sqlite3.connect(self.rt.settings.home / "actum.db") as connection:
            connection.execute(
                f"UPDATE agent_runs SET {names} WHERE run_id = ?",
                (*columns.values(), self.run.run_id),
            )
        connection.close()

    def carried_out(self) -> Run:
        self.rt.runs.worker().drain()
        return self.rt.runs.get(self.run.run_id)

    def refusal_of(self, changed: dict[str, Any] | str) -> str | None:
        """The code with which a worker refuses this metadata."""
        self.put(metadata=changed if isinstance(changed, str) else json.dumps(changed))
        run = self.carried_out()
        assert run.status.value == "failed"
        assert run.started_at is None, "it was claimed"
        assert not self.rt.runs.ledger.steps(run.run_id)
        assert not (self.rt.settings.root / "written.txt").exists()
        return run.error_code

    def keys_refused(self) -> list[str]:
        details = json.loads(str(self.rt.runs.get(self.run.run_id).error_details))
        found: list[str] = details["details"]["keys"]
        return found


@pytest.fixture
def attacked(rt: Runtime) -> Attacked:
    return Attacked(rt, submit(rt))


def leaves(found: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(found, dict):
        for key in found:
            yield from leaves(found[key], (*at, key))
    else:
        yield at


def changed(document: dict[str, Any], at: tuple[Any, ...], how: str) -> dict[str, Any]:
    """A copy with one leaf changed, retyped or removed."""
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in at[:-1]:
        inner = inner[key]
    value = inner[at[-1]]
    if how == "removed":
        del inner[at[-1]]
    elif how == "retyped":
        inner[at[-1]] = [value] if not isinstance(value, list) else "x"
    elif isinstance(value, bool):
        inner[at[-1]] = not value
    elif isinstance(value, int):
        inner[at[-1]] = value + 1
    elif isinstance(value, list):
        inner[at[-1]] = [*value, "maxFileBytes"]
    else:
        inner[at[-1]] = {"enforce": "off", "full": "ci"}.get(value, "0" * 64)
    return copy


@pytest.mark.req("003-97", "003-98", "003-99", "003-100", "003-101", "003-102", "003-103", "003-7")
@pytest.mark.parametrize("how", ["changed", "retyped", "removed"])
def test_every_changed_leaf_is_refused_before_the_first_step(attacked: Attacked, how: str) -> None:
    codes = {}
    for at in leaves(attacked.intact):
        codes[at] = attacked.refusal_of(changed(attacked.intact, at, how))
    assert set(codes.values()) <= {"CONTRACT_MISMATCH", "UNSUPPORTED_CONTRACT"}
    assert codes[("executionContractHash",)] == "CONTRACT_MISMATCH"
    assert codes[("effectiveExecutionConfig", "maxFilesPerStep")] == "CONTRACT_MISMATCH"
    if how != "removed":
        assert codes[("executionContractSchemaVersion",)] == "UNSUPPORTED_CONTRACT"
        assert (
            codes[("executionContractMaterial", "plannerPolicyVersion")] == "UNSUPPORTED_CONTRACT"
        )
    # The control: the intact row runs.
    attacked.put(metadata=json.dumps(attacked.intact))
    assert attacked.carried_out().status.value == "complete"
    assert (attacked.rt.settings.root / "written.txt").exists()


@pytest.mark.req("003-102", "003-62")
def test_removing_keys_switches_no_check_off(attacked: Attacked) -> None:
    for count in range(1, len(KEYS)):
        for gone in combinations(KEYS, count):
            left = {key: held for key, held in attacked.intact.items() if key not in gone}
            assert attacked.refusal_of(left) == "CONTRACT_MISMATCH", gone
            assert set(gone) <= set(attacked.keys_refused()), "each is named, not the seal alone"
    assert attacked.refusal_of({}) == "CONTRACT_MISMATCH", "a sealed run is no legacy run"
    assert attacked.refusal_of("[]") == "CONTRACT_MISMATCH"
    assert attacked.refusal_of("not json") == "CONTRACT_MISMATCH"
    assert attacked.refusal_of({**attacked.intact, "more": 1}) == "CONTRACT_MISMATCH"


@pytest.mark.req("003-103")
def test_a_contract_that_was_edited_consistently_has_no_valid_seal(attacked: Attacked) -> None:
    from actum.runs.contract.material import metadata_of

    weaker = metadata_of(fresh({"profile": "ci"}, {}))
    assert attacked.refusal_of(weaker) == "CONTRACT_MISMATCH"
    assert attacked.keys_refused() == ["seal"]
    other = metadata_of(fresh({}, {"AGENT_FS_MAX_FILES_PER_STEP": "15"}))
    assert other["executionContractHash"] == attacked.intact["executionContractHash"]
    assert attacked.refusal_of(other) == "CONTRACT_MISMATCH", "the fallback fields are sealed"


@pytest.mark.req("003-103")
def test_the_seal_is_for_one_run_one_file_and_one_revision(attacked: Attacked) -> None:
    rt = attacked.rt
    stranger = submit(rt, {"profile": "ci"})
    for columns in (
        {"seal": stranger.seal, "metadata": stranger.metadata},
        {"seal": stranger.seal},
        {"revision": 2},
        {"source": stranger.source.replace("work-item-1", "work-item-2")},
        {"workspace": "/"},
        {"seal": "{}"},
        {"seal": "not json"},
    ):
        intact = {
            "seal": attacked.run.seal,
            "metadata": attacked.run.metadata,
            "revision": 1,
            "source": attacked.run.source,
            "workspace": attacked.run.workspace,
        }
        attacked.put(**{**intact, **columns})
        run = attacked.carried_out()
        assert (run.status.value, run.error_code) == ("failed", "CONTRACT_MISMATCH"), columns
        assert not rt.runs.ledger.steps(run.run_id)


@pytest.mark.req("003-104", "003-105", "003-106")
def test_an_unsupported_contract_is_visible_without_a_log(attacked: Attacked) -> None:
    rt, run_id = attacked.rt, attacked.run.run_id
    newer = changed(
        attacked.intact, ("executionContractMaterial", "plannerPolicyVersion"), "changed"
    )
    newer["executionContractHash"] = "0" * 64  # both wrong and too new: support is judged first
    assert attacked.refusal_of(newer) == "UNSUPPORTED_CONTRACT"
    shown: Any = rt.runs.status(run_id)
    assert shown["error"]["code"] == "UNSUPPORTED_CONTRACT"
    assert shown["error"]["details"]["unsupportedFields"] == ["plannerPolicyVersion"]
    assert shown["error"]["details"]["supportedRanges"]["plannerPolicyVersion"] == [1]
    assert shown["executionContract"]["verified"] == "UNSUPPORTED_CONTRACT"
    (recorded,) = map(json.loads, rt.runs.ledger.decisions(run_id))
    assert (recorded["decision"], recorded["reasonCodes"]) == ("FAIL", ["UNSUPPORTED_CONTRACT"])
    asked = rt.runs.gate(run_id)
    assert not asked.passed
    assert asked.document["reasonCodes"] == ["UNSUPPORTED_CONTRACT"]
    written = json.loads((rt.settings.home / "decisions/latest.json").read_text())
    assert written == asked.document


@pytest.mark.req("003-105")
def test_a_run_that_no_live_worker_supports_waits_and_is_shown_as_blocked(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setitem(material.VERSIONS, "plannerPolicyVersion", 2)  # type: ignore[arg-type]
        run = submit(rt)
    rt.runs.worker().drain()
    waiting: Any = rt.runs.status(run.run_id)
    assert waiting["status"] == "queued", "an older worker does not fail it"
    assert waiting["blocked"] == "UNSUPPORTED_CONTRACT"
    assert rt.runs.gate(run.run_id).document["reasonCodes"] == ["UNSUPPORTED_CONTRACT"]
    monkeypatch.setitem(check.SUPPORTED, "plannerPolicyVersion", (1, 2))  # type: ignore[arg-type]
    rt.runs.worker().drain()
    done: Any = rt.runs.status(run.run_id)
    assert (done["status"], done["blocked"]) == ("complete", None)


@pytest.mark.req("003-2", "003-83", "003-57", "003-61")
def test_the_environment_of_a_worker_changes_nothing(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = submit(rt, {"maxFilesPerStep": 2})
    monkeypatch.setenv("AGENT_FS_MAX_FILES_PER_STEP", "1")
    monkeypatch.setenv("AGENT_LIGHT_VALIDATION_MODE", "off")
    add_agent(rt.settings.root, "touch one two")
    rt.runs.worker().drain()
    done = rt.runs.get(run.run_id)
    assert done.status.value == "complete", "two files are permitted by the persisted contract"
    assert done.metadata == run.metadata


def test_supported_versions_are_those_of_this_code() -> None:
    assert all(list(known) == [check.VERSIONS[name]] for name, known in check.SUPPORTED.items())


def test_a_legacy_run_is_carried_out_by_no_worker(rt: Runtime) -> None:
    attacked = Attacked(rt, submit(rt))
    attacked.put(metadata="{}", revision=0, seal=None)
    run = attacked.carried_out()
    assert (run.status.value, run.error_code) == ("failed", "EXECUTION_CONTRACT_MISSING")
    assert rt.runs.gate(run.run_id).document["reasonCodes"] == ["EXECUTION_CONTRACT_MISSING"]


def test_edits_are_found_by_verify_too(rt: Runtime) -> None:
    run = submit(rt)
    edit_metadata(rt.settings.home, run.run_id, {})
    from acceptance.terminal import Terminal

    said = Terminal(rt.settings.root).actum("verify", "--all")
    assert said.code == 1, said
    assert f"run {run.run_id}" in said.text + said.aside
