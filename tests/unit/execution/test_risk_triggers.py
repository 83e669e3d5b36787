"""The five triggers: each stops a call before it starts, and asks for a person's decision.

Each leaves a request in the inbox. The use of a tool (AG-01) and its scope (AG-02) are decided by
an approval of the tool, the other three call by call.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum import Refused, Result, Runtime
from actum.evidence.records.audit import Decision
from actum.registry.approval_workflow import approve
from actum.store.keys import Keyring

from .project import Project, decide_all, elevated


class Risky(Project):
    """`shell`, whose scope reaches a folder outside, `/etc` and one service on this machine."""

    def __init__(self, folder: Path) -> None:
        self.outside = folder.resolve() / "outside"
        self.outside.mkdir()
        super().__init__(folder, scope=(".", "/etc", str(self.outside)))
        file = self.root / "tools/shell/tool.yaml"
        tool = yaml.safe_load(file.read_text())
        tool["scope"] |= {"network": "on", "hosts": ["127.0.0.1:8080"]}
        tool["permissions"]["network"]["outbound"] = ["http"]
        file.write_text(yaml.safe_dump(tool))
        self._approve()

    def add_unapproved(self) -> None:
        shell, folder = self.root / "tools/shell", self.root / "tools/fresh"
        shutil.copytree(shell, folder)
        tool = yaml.safe_load((folder / "tool.yaml").read_text())
        tool["scope"]["network"] = "on"  # YAML 1.1 reads a boolean
        tool |= {"tool_id": "TL-900", "name": "fresh"}
        (folder / "tool.yaml").write_text(yaml.safe_dump(tool))
        (file,) = (folder / "adapters").glob("*.yaml")
        adapter = yaml.safe_load(file.read_text())
        adapter |= {"adapter_id": "ADP-900", "name": "fresh", "tool_id": "TL-900"}
        file.write_text(yaml.safe_dump(adapter))


@pytest.fixture
def project(tmp_path: Path) -> Risky:
    return Risky(tmp_path)


def ask(runtime: Runtime, project: Risky, tool: str = "shell", **fields: Any) -> Result:
    return runtime.exec(tool, cwd=project.work, stdin="true", set=fields)


def test_an_ordinary_call_of_an_approved_tool_asks_nobody(runtime: Runtime, project: Risky) -> None:
    assert ask(runtime, project).ok
    assert runtime.approvals.latest() == ()


def asked_for(runtime: Runtime) -> list[tuple[str, str, str]]:
    """(gate, operation, target) of each entry of the inbox."""
    return [
        (each.gate, each.need.operation, each.need.target) for each in runtime.approvals.latest()
    ]


@pytest.mark.req("000-192")
def test_the_first_use_of_a_tool_takes_its_approval(runtime: Runtime, project: Risky) -> None:
    project.add_unapproved()
    refused = ask(runtime, project, "fresh")
    assert refused.reason_codes == ("TOOL_NOT_APPROVED",)
    assert "actum tools approve TL-900" in refused.violations[0].message
    assert project.runner.plans == []
    assert ask(runtime, project, "fresh").reason_codes == ("TOOL_NOT_APPROVED",)
    assert asked_for(runtime) == [("AG-01", "approve", "TL-900")]  # once
    (request,) = runtime.approvals.latest()
    with pytest.raises(Refused) as undecidable:
        runtime.approvals.decide(request.request_id, Decision.ALLOW, by="boss", why="w")
    assert undecidable.value.code == "NOTHING_TO_DECIDE"
    assert "actum tools approve TL-900" in undecidable.value.remedy
    keyring = Keyring.open(project.root / ".actum")
    approve(project.root, keyring, "fresh", by="user:boss", evidence="test", date="2026-11-15")
    assert ask(runtime, project, "fresh").ok
    assert "AG-01:pin" in project.runner.plans[-1].policy.approvals


@pytest.mark.req("000-192")
def test_what_is_beyond_the_scope_takes_a_wider_approval(runtime: Runtime, project: Risky) -> None:
    wanted = {
        "sandbox.network.enabled": True,
        "sandbox.network.allow": ["elsewhere.example:80"],
    }
    refused = ask(runtime, project, **wanted)
    assert refused.reason_codes == ("SCOPE_EXCEEDED",)
    assert "approved" in refused.violations[0].message
    assert project.runner.plans == []
    wider = "TL-010 elsewhere.example:80"
    assert asked_for(runtime) == [("AG-02", "widen the scope for", wider)]
    findings = runtime.verifier.verify_all()
    assert [finding for finding in findings if not finding.passed] == []


def _reaching_a_service(_: Risky) -> dict[str, Any]:
    return {"sandbox.network.enabled": True, "sandbox.network.allow": ["127.0.0.1:8080"]}


def _writing_outside(project: Risky) -> dict[str, Any]:
    return elevated(write=[str(project.outside)])


def _reading_the_system(_: Risky) -> dict[str, Any]:
    return elevated("/etc/hostname")


@pytest.mark.req("000-192")
@pytest.mark.parametrize(
    ("gate", "wish"),
    [
        ("AG-03", _reaching_a_service),
        ("AG-04", _writing_outside),
        ("AG-05", _reading_the_system),
    ],
)
def test_network_writing_outside_and_elevation_make_a_request_each_time(
    runtime: Runtime, project: Risky, gate: str, wish: Callable[[Risky], dict[str, Any]]
) -> None:
    fields = wish(project)
    refused = ask(runtime, project, **fields)
    assert refused.reason_codes == ("APPROVAL_REQUIRED",)
    assert project.runner.plans == []
    requests = {each.request_id: each for each in runtime.approvals.latest()}
    assert {violation.value for violation in refused.violations} == set(requests)
    assert gate in {violation.field for violation in refused.violations}
    decide_all(runtime, refused)
    assert ask(runtime, project, **fields).ok
    granted = project.runner.plans[-1].policy.approvals
    assert any(entry.startswith(f"{gate}:user:boss:") for entry in granted)
    assert ask(runtime, project, **fields).reason_codes == ("APPROVAL_REQUIRED",)
