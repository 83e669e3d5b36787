"""Where a tool runs is written in its approved tool.yaml, and a runner knows only its plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from actum import ContractInvalid, Outcome, Runtime
from actum.contract.call import Plan
from actum.contract.model import RunnerKind
from actum.registry.approval_workflow import approve
from actum.runners.init_request import Description
from actum.testing import FakeRunner, captured


@pytest.fixture
def rt() -> Iterator[Runtime]:
    with Runtime.temporary(pool=False) as runtime:
        yield runtime


def moved_to(rt: Runtime, runner: str) -> None:
    """Approve the shell tool for another runner."""
    file = rt.settings.root / "tools" / "shell" / "tool.yaml"
    file.write_text(file.read_text().replace("runner: local", f"runner: {runner}"))
    approve(rt.settings.root, rt.keyring, "shell", by="b", evidence="e", date="2026-01-01")


@pytest.mark.req("004-21")
@pytest.mark.parametrize("runner", ["remote", "docker"])
def test_a_runner_that_is_not_there_is_refused_by_name(rt: Runtime, runner: str) -> None:
    moved_to(rt, runner)
    result = rt.exec("shell", stdin="true")
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("RUNNER_UNAVAILABLE",))
    assert f"The {runner} runner is not available" in result.violations[0].message
    assert result.result is None and result.runner_type == runner


@pytest.mark.sandbox
@pytest.mark.req("004-22", "004-20")
def test_the_runner_comes_from_the_tool_and_from_nobody_else(rt: Runtime) -> None:
    assert rt.exec("shell", stdin="true").check().runner_type == "local"
    with pytest.raises(ContractInvalid, match="runner"):
        rt.exec("shell", stdin="true", set={"runner": "local"})
    with pytest.raises(ContractInvalid, match="runner"):
        rt.exec("shell", stdin="true", set={"sandbox.runner": "docker"})
    moved_to(rt, "docker")  # although local is enabled here, nothing falls back to it
    assert rt.exec("shell", stdin="true").outcome is Outcome.REJECTED


@pytest.mark.req("004-16", "004-14")
def test_a_runner_sees_the_plan_and_not_what_it_is_for(rt: Runtime) -> None:
    plans: list[Plan] = []
    for purpose, who in (("read a file", "agent:one"), ("delete everything", "agent:two")):
        runner = FakeRunner(captured())
        # A runtime each: the second request is judged anew, not by the decision about the first.
        with Runtime(rt.settings, runners={RunnerKind.LOCAL: runner}) as faked:
            faked.exec(
                "shell", stdin="true", cwd=rt.settings.root, purpose=purpose, requested_by=who
            )
        plans += runner.plans
    first, second = plans
    assert {field.name for field in dataclasses.fields(Plan)}.isdisjoint({"contract", "purpose"})
    # The label is for people; without it, the ids of the trace and the layers of each transaction
    # nothing tells the two apart.
    assert list(first.layers) == list(second.layers) == [str(rt.settings.root)]
    same = {"label": "", "trace": first.trace, "layers": dict.fromkeys(first.layers, "/layers")}
    one, other = dataclasses.replace(first, **same), dataclasses.replace(second, **same)
    assert one == other
    assert Description(one).as_found() == Description(other).as_found()
