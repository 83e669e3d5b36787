from __future__ import annotations

import dataclasses

import pytest

from actum.contract.call import (
    AdapterRef,
    Argument,
    Call,
    Check,
    CheckResult,
    EffectivePolicy,
    Executable,
    NetworkPolicy,
    Plan,
    SecretUse,
    ToolRef,
    TraceContext,
    ValidationProof,
)
from actum.contract.limits import Limits
from actum.contract.model import RunnerKind

POLICY = EffectivePolicy(
    runner=RunnerKind.LOCAL,
    limits=Limits(timeout_ms=1000, memory_mb=64, cpu_cores=1, max_children=0, allow_fork=True),
    read=("/repo",),
    write=(),
    deny=(),
    protect=(),
    network=NetworkPolicy(enabled=False, allow=(), deny=(), outbound=()),
    environment=(),
)

PROOF = ValidationProof(
    call_sha256="c",
    policy_sha256="p",
    checks=(Check(code="IV-01", result=CheckResult.PASSED),),
    executable=Executable(path="/bin/true", sha256="e", device=1, inode=2),
)


@pytest.mark.parametrize(
    "change",
    [
        {"runner": RunnerKind.DOCKER},
        *(
            {"limits": dataclasses.replace(POLICY.limits, **{name: 2})}
            for name in ("timeout_ms", "memory_mb", "cpu_cores", "max_children")
        ),
        {"limits": dataclasses.replace(POLICY.limits, allow_fork=False)},
        {"read": ("/",)},
        {"write": ("/repo",)},
        {"deny": ("/repo/x",)},
        {"protect": ("/repo/x",)},
        {"network": dataclasses.replace(POLICY.network, enabled=True)},
        {"network": dataclasses.replace(POLICY.network, allow=("a",))},
        {"network": dataclasses.replace(POLICY.network, deny=("a",))},
        {"network": dataclasses.replace(POLICY.network, outbound=("tcp",))},
        {"environment": ("A",)},
        {"approvals": ("AG-01:pin",)},
    ],
)
def test_every_part_of_a_policy_is_in_its_digest(change):
    assert dataclasses.replace(POLICY, **change).sha256 != POLICY.sha256


@pytest.mark.parametrize(
    "change",
    [
        {"call_sha256": "d"},
        {"policy_sha256": "q"},
        {"checks": ()},
        {"checks": (Check(code="IV-01", result=CheckResult.ESCAPED, names=("a",)),)},
        {"executable": dataclasses.replace(PROOF.executable, sha256="f")},
        {"executable": dataclasses.replace(PROOF.executable, path="/bin/false")},
    ],
)
def test_every_finding_is_in_the_digest_of_a_proof(change):
    assert dataclasses.replace(PROOF, **change).sha256 != PROOF.sha256


def test_a_call_is_its_program_and_arguments_in_order():
    call = Call(
        tool=ToolRef(tool_id="T", name="t", version="1", pin="p"),
        adapter=AdapterRef(adapter_id="A", version="1", kind="cli", status="active", sha256="s"),
        operation="rg",
        program="rg",
        arguments=(Argument(value="-n", field="a"), Argument(value="x y", field="b")),
        environment={},
        stdin=b"",
        working_directory="/",
        input_files=(),
    )
    assert call.argv == ("rg", "-n", "x y")


ARGV = ("true", "a")
PLAN = Plan(
    tool=ToolRef(tool_id="TL-1", name="t", version="1.0.0", pin="a"),
    adapter=AdapterRef(
        adapter_id="ADP-1", version="1.0.0", kind="cli", status="active", sha256="b"
    ),
    argv=ARGV,
    environment={"A": "1"},
    working_directory="/repo",
    stdin=b"in",
    policy=POLICY,
    proof=PROOF,
    output_files=(),
    artifacts=(),
    trace=TraceContext(trace_id="t", execution_id="e"),
    provided={"x": b"1"},
)


@pytest.mark.parametrize(
    "change",
    [
        {"tool": dataclasses.replace(PLAN.tool, pin="b")},
        {"adapter": dataclasses.replace(PLAN.adapter, sha256="c")},
        {"argv": ("true", "b")},
        {"environment": {"A": "2"}},
        {"environment": {}},
        {"working_directory": "/"},
        {"stdin": b"out"},
        {"provided": {"x": b"2"}},
        {"secrets": (SecretUse(name="S", variable="S"),)},
        {"steady": True},
    ],
)
def test_a_plan_with_the_same_argv_and_anything_else_different_is_another_call(
    change: dict[str, object],
) -> None:
    first = PLAN.call_sha256
    assert dataclasses.replace(PLAN, **change).call_sha256 != first
    assert dataclasses.replace(PLAN, trace=TraceContext(trace_id="", execution_id="")).call_sha256
    assert PLAN.call_sha256 == first


def test_what_a_plan_says_now_is_digested_and_not_what_it_said() -> None:
    environment = {"A": "1"}
    plan = dataclasses.replace(PLAN, argv=("true", "changed"), environment=environment)
    first = plan.call_sha256
    environment["A"] = "2"
    assert plan.call_sha256 != first
    environment["A"] = "1"
    assert plan.call_sha256 == first


def test_a_proof_in_an_image_is_another_proof() -> None:
    inside = dataclasses.replace(PROOF.executable, image="sha256:" + "0" * 64)
    assert dataclasses.replace(PROOF, executable=inside).sha256 != PROOF.sha256
