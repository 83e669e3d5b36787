"""An equal request is judged once, and again as soon as anything that it rests on has changed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum import Result, Runtime
from actum.contract.call import Plan
from actum.contract.limits import STDIN_BYTES
from actum.execution.decision_cache import DecisionCache, key_of
from actum.execution.pipeline import execute
from actum.registry.approval_workflow import block, unblock
from actum.registry.digest import file_clock_ns
from actum.runners.base import require_proof
from actum.store.keys import Keyring
from actum.value import replace
from common.settings import add_settings

from .project import Project, decide_all, elevated


class Own(Project):
    """`shell` with a PATH of its own, an approved variable and an approved secret."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.programs = self.root / "programs"
        self.first = self.root / "first"
        for place in (self.programs, self.first):
            place.mkdir()
        self.program = self.programs / "sh"
        shutil.copy("/bin/true", self.program)
        file = self.root / "tools/shell/tool.yaml"
        tool = yaml.safe_load(file.read_text())
        tool["scope"]["network"] = "off"
        tool["path"] = [str(self.first), str(self.programs)]
        tool["environment"] = ["COLOUR"]
        tool["permissions"]["secrets"] = {"allowed": ["TOKEN"]}
        file.write_text(yaml.safe_dump(tool))
        add_settings(self.root, f'\n[secrets]\nTOKEN = {{ file = "{folder}/token" }}\n')
        self._approve()
        for name in ("a", "b"):
            (self.root / name).mkdir()
        settled()

    @property
    def plans(self) -> list[Plan]:
        return self.runner.plans


def settled() -> None:
    """What was changed in this very tick of the files' clock is rightly not kept."""
    # Since Linux 6.13 a file's time can be ahead of the coarse clock, by up to one of its ticks.
    tick = file_clock_ns() + 10_000_000
    while file_clock_ns() <= tick:
        time.sleep(0.001)


@pytest.fixture
def project(tmp_path: Path) -> Own:
    return Own(tmp_path)


def ask(runtime: Runtime, project: Own, **words: Any) -> Result:
    return runtime.exec("shell", **{"cwd": str(project.work), "stdin": b"true", **words})


def is_same_judgement(one: Plan, other: Plan) -> bool:
    return one.policy is other.policy and one.proof.executable is other.proof.executable


def test_an_equal_request_gets_the_same_judgement_and_everything_else_anew(
    runtime: Runtime, project: Own
) -> None:
    first = ask(runtime, project, env={"COLOUR": "red"}, stdin=b"x", purpose="one")
    second = ask(runtime, project, env={"COLOUR": "red"}, stdin=b"x", purpose="two")
    one, two = project.plans
    assert first.ok and second.ok
    assert is_same_judgement(one, two)
    assert one.tool is two.tool and one.adapter is two.adapter
    assert (one.label, two.label) == ("one", "two")
    assert one.trace.execution_id == first.execution_id != second.execution_id
    assert two.trace.execution_id == second.execution_id
    assert first.receipt_id != second.receipt_id
    assert two.environment is not one.environment
    # Each attempt has layers of its own, for the same folders.
    assert one.layers.keys() == two.layers.keys() != set()
    assert set(one.layers.values()).isdisjoint(two.layers.values())
    assert replace(two, trace=one.trace, label=one.label, layers=one.layers) == one


@pytest.mark.parametrize(
    "words",
    [
        {"env": {"COLOUR": "red"}},
        {"timeout": "7s"},
        {"memory": "100M"},
        {"set": {"outputs.output_files": ["made"]}},
        {"set": {"determinism": "D1"}},
        {"set": {"sandbox.filesystem.deny": ["hidden"]}},
        {"set": {"sandbox.processes.allow_fork": False}},
    ],
    ids=str,
)
def test_another_request_is_judged_on_its_own(
    runtime: Runtime, project: Own, words: dict[str, Any]
) -> None:
    assert ask(runtime, project).ok
    for _ in range(2):
        assert ask(runtime, project, **words).attempts == 1
    plain, other, again = project.plans
    assert not is_same_judgement(plain, other)
    assert is_same_judgement(other, again)


def test_another_stdin_alone_is_not_judged_again_but_proven_on_its_own(
    runtime: Runtime, project: Own
) -> None:
    """Of what is passed on as it is, only the size is judged, and that it is not empty."""
    scripts = (b"one", b"two", b"three", b"one")
    results = [ask(runtime, project, stdin=script) for script in scripts]
    assert len(runtime.services.decision_cache.kept) == 1
    assert [plan.stdin for plan in project.plans] == [b"one", b"two", b"three", b"one"]
    assert len({id(plan.policy) for plan in project.plans}) == 1
    for plan in project.plans:
        require_proof(plan)
    digests = [_signed(runtime, result, "input_digest") for result in results]
    with project.open() as other:  # which judges each of them for the first time
        fresh = []
        for script in scripts:
            other.services.decision_cache.kept.clear()
            fresh.append(_signed(other, ask(other, project, stdin=script), "input_digest"))
    assert digests == fresh
    assert digests[0] == digests[3] != digests[1] != digests[2]
    afresh = project.plans[4:]
    assert [plan.proof for plan in afresh] == [plan.proof for plan in project.plans[:4]]

    too_much = ask(runtime, project, stdin=b"x" * (STDIN_BYTES + 1))
    assert too_much.reason_codes == ("IV_05",)
    for empty in (b"", None, b" \n"):
        assert ask(runtime, project, stdin=empty).reason_codes == ("PROGRAM_EMPTY",)


def _signed(runtime: Runtime, result: Result, name: str) -> Any:
    envelope = runtime.services.receipts.find(result.receipt_id).envelope
    return json.loads(base64.b64decode(envelope["payload"]))["predicate"][name]


def test_equal_values_of_other_types_are_other_requests(runtime: Runtime, project: Own) -> None:
    """1 and true are equal to Python, and two things to a tool."""
    results = [
        ask(runtime, project, parameters={"nothing": given}, stdin=b"x") for given in (1, True)
    ]
    assert {result.outcome.value for result in results} == {"REJECTED"}
    contracts = [
        runtime.contract(
            {
                "tool_id": "shell",
                "inputs": {"command": "sh", "parameters": {"n": given}, "stdin": "true"},
            }
        )
        for given in (1, True, 1.0)
    ]
    entry = runtime.services.registry.entry("shell", None)
    keys = {key_of(contract, entry, runtime.services.policy) for contract in contracts}
    assert len(keys) == 3 and None not in keys


def test_a_mapping_that_its_owner_changed_is_another_request(
    runtime: Runtime, project: Own
) -> None:
    contract = runtime.contract(
        {
            "tool_id": "shell",
            "inputs": {
                "command": "sh",
                "environment": {"COLOUR": "red"},
                "working_directory": str(project.work),
                "stdin": "true",
            },
        }
    )
    runtime.execute(contract)
    changed: Any = contract.inputs.environment
    changed["COLOUR"] = "blue"
    runtime.execute(replace(contract, execution_id="another"))
    one, two = project.plans
    assert (one.environment["COLOUR"], two.environment["COLOUR"]) == ("red", "blue")


def test_a_swapped_working_directory_is_seen(runtime: Runtime, project: Own) -> None:
    link = project.root.parent / "here"
    link.symlink_to(project.root / "a")
    settled()
    for _ in range(2):
        assert ask(runtime, project, cwd=str(link)).ok
    assert is_same_judgement(*project.plans)
    link.unlink()
    link.symlink_to(project.root / "b")
    assert ask(runtime, project, cwd=str(link)).ok
    assert [Path(plan.working_directory).name for plan in project.plans] == ["a", "a", "b"]
    link.unlink()
    link.symlink_to("/var")
    assert ask(runtime, project, cwd=str(link)).reason_codes == ("IV_03",)
    link.unlink()
    link.write_text("no folder")
    assert ask(runtime, project, cwd=str(link)).reason_codes == ("IV_03",)


def test_a_folder_on_the_way_that_became_a_link_is_seen(runtime: Runtime, project: Own) -> None:
    inner = project.root / "a" / "inner"
    inner.mkdir()
    (project.root / "b" / "inner").mkdir()
    settled()
    for _ in range(2):
        assert ask(runtime, project, cwd=str(inner)).ok
    assert is_same_judgement(*project.plans)
    (project.root / "a").rename(project.root / "c")
    (project.root / "a").symlink_to("b")
    assert ask(runtime, project, cwd=str(inner)).reason_codes == ("IV_03",)
    assert len(project.plans) == 2


def test_what_is_denied_and_protected_follows_its_links(runtime: Runtime, project: Own) -> None:
    hidden = project.root / "hidden"
    hidden.symlink_to("a")
    settled()
    words = {"cwd": str(project.root), "set": {"sandbox.filesystem.deny": ["hidden"]}}
    for _ in range(2):
        assert ask(runtime, project, **words).ok
    assert is_same_judgement(*project.plans)
    assert str(project.root / "a") in project.plans[-1].policy.deny

    hidden.unlink()
    hidden.symlink_to("b")
    assert ask(runtime, project, **words).ok
    assert str(project.root / "b") in project.plans[-1].policy.deny

    assert str(project.root / "c") not in project.plans[-1].policy.protect
    (project.root / ".git").mkdir()
    (project.root / "c").mkdir()
    (project.root / ".git/hooks").symlink_to("../c")
    assert ask(runtime, project, **words).ok
    assert str(project.root / "c") in project.plans[-1].policy.protect


def _without_permission(project: Own) -> None:
    project.program.chmod(0o644)


def _gone(project: Own) -> None:
    project.program.unlink()


def _a_folder(project: Own) -> None:
    project.program.unlink()
    project.program.mkdir()


@pytest.mark.parametrize("change", [_without_permission, _gone, _a_folder])
def test_a_program_that_can_no_longer_run_is_refused(
    runtime: Runtime, project: Own, change: Callable[[Own], None]
) -> None:
    for _ in range(2):
        assert ask(runtime, project).ok
    assert is_same_judgement(*project.plans)
    change(project)
    assert ask(runtime, project).reason_codes == ("EXECUTABLE_MISSING",)
    assert len(project.plans) == 2


def _overwritten(project: Own) -> None:
    with project.program.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"more")


def _replaced(project: Own) -> None:
    new = project.programs / "new"
    shutil.copy("/bin/false", new)
    new.rename(project.program)


def _found_earlier(project: Own) -> None:
    shutil.copy("/bin/false", project.first / "sh")


@pytest.mark.parametrize("change", [_overwritten, _replaced, _found_earlier])
def test_another_program_is_another_proof(
    runtime: Runtime, project: Own, change: Callable[[Own], None]
) -> None:
    for _ in range(2):
        assert ask(runtime, project).ok
    change(project)
    assert ask(runtime, project).ok
    one, two, three = (plan.proof.executable for plan in project.plans)
    assert one is two
    assert three.sha256 != one.sha256


def test_a_tool_that_was_blocked_changed_or_approved_anew_is_seen(
    runtime: Runtime, project: Own
) -> None:
    for _ in range(2):
        assert ask(runtime, project).ok
    assert is_same_judgement(*project.plans)
    keyring = Keyring.open(project.root / ".actum")
    extra = project.root / "tools/shell/extra.md"
    extra.write_text("new")
    assert ask(runtime, project).reason_codes == ("TOOL_CHANGED",)
    extra.unlink()
    assert ask(runtime, project).ok
    project.approve_change("a word more")
    assert ask(runtime, project).ok
    assert project.plans[-1].tool.pin != project.plans[0].tool.pin
    assert not is_same_judgement(project.plans[-1], project.plans[0])
    block(project.root, keyring, "shell", by="user:maker", evidence="test", date="2026-11-15")
    assert ask(runtime, project).reason_codes == ("TOOL_NOT_ACTIVE",)
    unblock(project.root, keyring, "shell", by="user:maker", evidence="test", date="2026-11-15")
    assert ask(runtime, project).ok


def test_other_settings_judge_anew(runtime: Runtime, project: Own) -> None:
    document = {
        "tool_id": "shell",
        "inputs": {"command": "sh", "working_directory": str(project.work), "stdin": "true"},
    }
    assert execute(runtime.contract(document), runtime.services).ok
    late = replace(runtime.services, policy=replace(runtime.services.policy, time_left_ms=0))
    refused = execute(runtime.contract(document), late)
    assert refused.reason_codes == ("NO_TIME_LEFT",)
    assert execute(runtime.contract(document), runtime.services).ok
    assert is_same_judgement(*project.plans)


def test_a_secret_is_looked_for_each_time(runtime: Runtime, project: Own) -> None:
    token = project.root.parent / "token"
    token.write_text("a secret of some length")
    token.chmod(0o600)
    for _ in range(2):
        assert ask(runtime, project, secrets=["TOKEN"]).ok
    assert is_same_judgement(*project.plans)
    token.unlink()
    assert ask(runtime, project, secrets=["TOKEN"]).reason_codes == ("SECRET_MISSING",)


def test_an_approval_is_asked_for_each_time(runtime: Runtime, project: Own) -> None:
    def asked() -> Result:
        return ask(runtime, project, set=elevated("/etc/hostname", str(project.programs)))

    decide_all(runtime, asked())
    assert asked().ok
    assert not runtime.services.decision_cache.kept
    project.clock.pass_by(days=30)
    assert asked().reason_codes == ("APPROVAL_REQUIRED",)
    assert len(project.plans) == 1


def test_the_content_of_input_files_is_read_each_time(runtime: Runtime, project: Own) -> None:
    (project.work / "file").write_text("one")
    settled()
    for _ in range(2):
        assert ask(runtime, project, files=["file"]).ok
    assert not is_same_judgement(*project.plans)
    assert not runtime.services.decision_cache.kept


def test_a_refusal_is_not_kept(runtime: Runtime, project: Own) -> None:
    missing = project.root / "later"
    assert ask(runtime, project, cwd=str(missing)).reason_codes == ("IV_03",)
    assert not runtime.services.decision_cache.kept
    missing.mkdir()
    assert ask(runtime, project, cwd=str(missing)).ok


def test_what_changed_this_instant_is_not_kept(runtime: Runtime, project: Own) -> None:
    """It could change again in the same tick of the clock, and keep its times."""
    tick = file_clock_ns()
    while True:
        _overwritten(project)
        result = ask(runtime, project)
        assert result.ok
        if project.program.stat().st_ctime_ns >= tick:
            break
    plan = project.plans[-1]
    _overwritten(project)
    ask(runtime, project)
    assert project.plans[-1].proof.executable.sha256 != plan.proof.executable.sha256


def test_few_are_kept(runtime: Runtime, project: Own) -> None:
    for number in range(20):
        assert ask(runtime, project, timeout=f"{number + 1}s").ok
    assert len(runtime.services.decision_cache.kept) == 20
    assert ask(runtime, project, stdin=b"x" * 100_000).ok
    assert len(runtime.services.decision_cache.kept) == 20
    few = DecisionCache(most=3)
    for key, precedent in runtime.services.decision_cache.kept.items():
        few.keep(key, precedent)
        assert len(few.kept) <= 3
