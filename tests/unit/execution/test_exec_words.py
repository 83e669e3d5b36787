"""The keywords of `Runtime.exec`: each request is read by itself, whatever was asked before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from actum import Result, Runtime
from actum import runtime as runtime_module
from actum.contract.model import Contract
from actum.errors import ContractInvalid
from actum.execution.pipeline import execute
from actum.registry.approval_workflow import block
from actum.runners.concurrency import Got
from actum.store.keys import Keyring

from .project import Project, elevated


class _Bytes(bytes):
    """Bytes of a class of their own."""


@pytest.mark.parametrize("kind", [bytearray, _Bytes])
def test_a_stdin_of_another_kind_is_never_what_was_asked_before(
    runtime: Runtime, project: Project, kind: Any
) -> None:
    scripts = (b"y", b"x", b"y")
    for script in scripts:
        for _ in range(2):
            assert runtime.exec("shell", cwd=project.work, stdin=b"another's").ok
        assert runtime.exec("shell", cwd=project.work, stdin=kind(script)).ok
        assert project.runner.plans[-1].stdin == script


def test_stdin_that_is_set_as_a_field_of_the_contract_wins_each_time(
    runtime: Runtime, project: Project
) -> None:
    for stdin in (b"set", b"other", b"set", b"more"):
        words = {"cwd": project.work, "stdin": stdin}
        assert runtime.exec("shell", **words, set={"inputs.stdin": "set"}).ok
        assert runtime.exec("shell", **words).ok
    plans = [plan.stdin for plan in project.runner.plans]
    assert plans == [b"set", b"set", b"set", b"other", b"set", b"set", b"set", b"more"]


def test_the_same_words_elsewhere_later_and_with_an_id_of_their_own(
    runtime: Runtime, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Contract] = []

    def noted(contract: Contract, *rooms: Any, **more: Any) -> Result:
        asked.append(contract)
        return execute(contract, *rooms, **more)

    monkeypatch.setattr(runtime_module, "execute", noted)
    (project.work / "deeper").mkdir()
    places = [project.work, project.work, project.work / "deeper", project.work]
    for place in places:
        monkeypatch.chdir(place)
        project.clock.pass_by(seconds=1)
        result = runtime.exec("shell", stdin="true")
        assert result.ok
        plan = project.runner.plans[-1]
        assert plan.working_directory == str(place)
        assert plan.trace.execution_id == result.execution_id
        contract = asked[-1]
        assert contract.execution_id == result.execution_id
        assert contract.metadata.requested_at == project.clock.now
        assert contract.inputs.working_directory == str(place)
    mine = {"set": {"execution_id": "mine"}}
    first, second = (runtime.exec("shell", stdin="true", **mine) for _ in range(2))
    assert first.execution_id == second.execution_id == "mine"
    assert first.receipt_id == second.receipt_id
    assert len(project.runner.plans) == len(places) + 1


def test_a_tool_that_was_blocked_while_a_request_waited_is_refused(
    runtime: Runtime, project: Project
) -> None:
    keyring = Keyring.open(project.root / ".actum")

    class Slow:
        holds = False

        @contextmanager
        def place(self, contract: Contract) -> Iterator[Got]:
            block(project.root, keyring, "shell", by="user:maker", evidence="t", date="2026-11-15")
            yield Got.AFTER_A_WAIT

    for _ in range(3):
        assert runtime.exec("shell", cwd=project.work, stdin="true").ok
    refused = runtime.exec("shell", cwd=project.work, stdin="true", turn=Slow())
    assert refused.reason_codes == ("TOOL_NOT_ACTIVE",)
    assert len(project.runner.plans) == 3


def test_a_tool_that_was_blocked_while_people_decided_is_refused(
    runtime: Runtime, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = Keyring.open(project.root / ".actum")
    answers = [True, False]

    def decided(*_: Any, **__: Any) -> bool:
        block(project.root, keyring, "shell", by="user:maker", evidence="t", date="2026-11-15")
        return answers.pop(0)

    words = {"cwd": project.work, "stdin": "true", "set": elevated("/etc/hostname")}
    for _ in range(2):
        assert runtime.exec("shell", **words).reason_codes == ("APPROVAL_REQUIRED",)
    monkeypatch.setattr(runtime.approvals, "wait", decided)
    assert runtime.exec("shell", **words, wait_s=5).reason_codes == ("TOOL_NOT_ACTIVE",)


def test_malformed_words_are_put_on_record_each_time(runtime: Runtime) -> None:
    def recorded() -> int:
        row = runtime.database.row("SELECT count(*) FROM audit")
        return int(row[0])

    for _ in range(2):
        before = recorded()
        with pytest.raises(ContractInvalid):
            runtime.exec("shell", set={"sandbox.memory_mb": "much"})
        assert recorded() == before + 1
