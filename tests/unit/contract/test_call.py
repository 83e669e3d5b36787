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
    ToolRef,
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
