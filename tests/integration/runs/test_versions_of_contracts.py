"""The five versions are part of the contract: a bumped one gives another hash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Runtime
from actum.runs.contract import check, material

from .runs_project import make_project, metadata, submit


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    with Runtime.open(make_project(tmp_path / "p"), pool=False) as runtime:
        yield runtime


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("executionContractSchemaVersion", marks=pytest.mark.req("003-49")),
        pytest.param("determinismPolicyVersion", marks=pytest.mark.req("003-50")),
        pytest.param("plannerPolicyVersion", marks=pytest.mark.req("003-51")),
        pytest.param("correctionRecipeVersion", marks=pytest.mark.req("003-52")),
        pytest.param("validationPolicyVersion", marks=pytest.mark.req("003-53")),
    ],
)
def test_a_bumped_version_gives_another_hash_and_an_older_worker_refuses_it(
    rt: Runtime, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = metadata(rt.runs, submit(rt).run_id)
    with monkeypatch.context() as newer:
        newer.setitem(material.VERSIONS, name, 2)  # type: ignore[arg-type]
        run = submit(rt)
    after = metadata(rt.runs, run.run_id)
    assert after["executionContractMaterial"][name] == 2
    assert after["executionContractHash"] != before["executionContractHash"]
    shown = rt.runs.status(run.run_id)["executionContract"]
    assert isinstance(shown, dict)
    assert shown["verified"] == check.UNSUPPORTED
    assert run.queue != submit(rt).queue


@pytest.mark.req("003-54")
def test_equal_contracts_and_inputs_take_equal_branches(rt: Runtime, tmp_path: Path) -> None:
    from .runs_project import add_agent, item, work_file

    def branches(runtime: Runtime) -> list[tuple[object, ...]]:
        add_agent(runtime.settings.root, "echo bad > code.txt")
        add_agent(runtime.settings.root, "echo worse >> code.txt", number=7)
        lint = {"id": "lint", "tool": "shell", "stdin": "grep -q good code.txt"}
        source = work_file(item(id="b"), item(id="a"), light=[lint], corrector="agent-7")
        # As many corrections as there may be: each is a branch.
        config = {"correctionConvergenceMode": "off"}
        run = runtime.runs.submit(source, config=config, environ={})
        runtime.runs.worker().drain()
        return [
            (step.kind, step.item_id, step.attempt, step.status, step.codes, step.signature)
            for step in runtime.runs.ledger.steps(run.run_id)
        ]

    first = branches(rt)
    with Runtime.open(make_project(tmp_path / "q"), pool=False) as other:
        assert branches(other) == first
    corrections = [kind for kind, *_ in first if kind == "correction"]
    assert len(corrections) == 5, first
