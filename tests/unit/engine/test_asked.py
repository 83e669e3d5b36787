"""The same words are parsed once, for as long as the tool is called and spoken to the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from actum import Result, Runtime, wiring
from actum.contract import drafts
from actum.contract.model import Contract
from actum.engine import ask as module
from actum.engine.pipeline import execute
from actum.errors import ContractInvalid
from actum.registry.change import approve, block
from actum.runners.places import Got
from actum.store.keys import Keyring

from .project import Project, elevated


@pytest.fixture
def meant(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whatever had to be put into the words of a contract."""
    seen: list[Any] = []
    original = module.contract_document

    def contract_document(ask: Any, registry: Any) -> Any:
        seen.append(ask)
        return original(ask, registry)

    monkeypatch.setattr(module, "contract_document", contract_document)
    return seen


def test_the_same_words_are_put_into_a_contract_once(runtime: Runtime, meant: list[Any]) -> None:
    runtime.exec("shell", "a", stdin=b"x", env={"LANG": "C"}, timeout="5s")  # the registry learns
    first, second = (
        runtime.exec("shell", "a", stdin=b"x", env={"LANG": "C"}, timeout="5s") for _ in range(2)
    )
    assert len(meant) <= 2
    count = len(meant)
    third = runtime.exec("shell", "a", stdin=b"x", env={"LANG": "C"}, timeout="5s")
    assert len(meant) == count
    assert len({each.execution_id for each in (first, second, third)}) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"stdin": b"x"}, {"stdin": "x"}),
        ({"parameters": {"n": 1}}, {"parameters": {"n": True}}),
        ({"parameters": {"n": 1}}, {"parameters": {"n": 1.0}}),
        ({"env": {"A": "b"}}, {"set": {"A": "b"}}),
        ({"timeout": "5s"}, {"memory": "5s"}),
        ({"purpose": "a"}, {"requested_by": "a"}),
        ({"secrets": ["A"]}, {"secrets": {"A": "env"}}),
    ],
    ids=str,
)
def test_other_words_are_others(
    runtime: Runtime, meant: list[Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    for words in (one, one, other):
        try:
            runtime.exec("shell", **words)
        except ContractInvalid:
            continue
    assert repr(meant[-1]) != repr(meant[0])
    for name, content in other.items():
        assert repr(getattr(meant[-1], name)) == repr(content)


def test_other_bytes_on_stdin_are_the_same_words(
    runtime: Runtime, project: Project, meant: list[Any]
) -> None:
    scripts = (b"one", b"two", b"\xff\x00", b"", b"x" * 100_000, b"one")
    for _ in range(2):
        assert runtime.exec("shell", cwd=project.work, stdin=b"first").ok
    count = len(meant)
    for script in scripts:
        assert runtime.exec("shell", cwd=project.work, stdin=script).ok
    assert len(meant) == count
    assert [plan.stdin for plan in project.runner.plans[2:]] == list(scripts)
    assert runtime.exec("shell", cwd=project.work, stdin="one").ok
    assert runtime.exec("shell", cwd=project.work).ok
    assert len(meant) == count + 2
    assert [plan.stdin for plan in project.runner.plans[-2:]] == [b"one", b""]


class _Bytes(bytes):
    """Of another kind than `bytes`, and written as they are."""


@pytest.mark.parametrize("kind", [bytearray, _Bytes])
def test_a_stdin_of_another_kind_is_never_what_was_asked_before(
    runtime: Runtime, project: Project, kind: Any
) -> None:
    scripts = (b"", b"x", b"")
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


def test_what_can_change_is_in_no_two_contracts(runtime: Runtime, project: Project) -> None:
    asked = runtime._asked
    words: list[Any] = [getattr(module.Ask(tool="shell"), name) for name in module._WORDS]
    words[module._WORDS.index("parameters")] = {"list": ["a"]}
    one = runtime._completed(asked.sections(*words))
    changed: Any = one.inputs.parameters["list"]
    changed.append("b")
    two = runtime._completed(asked.sections(*words))
    assert two.inputs.parameters == {"list": ["a"]}
    words[module._WORDS.index("parameters")] = {"flat": "a"}
    flat = [runtime._completed(asked.sections(*words)) for _ in range(2)]
    mapping: Any = flat[0].inputs.parameters
    mapping["more"] = "x"
    assert runtime._completed(asked.sections(*words)).inputs.parameters == {"flat": "a"}
    assert drafts.is_shareable(asked.sections(*words))


def test_another_lock_means_the_words_anew(
    runtime: Runtime, project: Project, meant: list[Any]
) -> None:
    for _ in range(3):
        assert runtime.exec("shell", cwd=project.work).ok
    count = len(meant)
    assert runtime.exec("shell", cwd=project.work).ok
    assert len(meant) == count
    keyring = Keyring.open(project.root / ".actum")
    approve(project.root, keyring, "shell", by="user:maker", evidence="test", date="2026-11-15")
    assert runtime.exec("shell", cwd=project.work).ok
    assert len(meant) == count + 1


def test_the_same_words_elsewhere_later_and_with_an_id_of_their_own(
    runtime: Runtime, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a mould must notice: where we are, what time it is, that no id was left out."""
    asked: list[Any] = []

    def noted(contract: Contract, *rooms: Any, **more: Any) -> Result:
        asked.append((contract, more["mould"]))
        return execute(contract, *rooms, **more)

    monkeypatch.setattr(wiring, "execute", noted)
    (project.work / "deeper").mkdir()
    places = [project.work, project.work, project.work / "deeper", project.work]
    for place in places:
        monkeypatch.chdir(place)
        project.clock.pass_by(seconds=1)
        result = runtime.exec("shell")
        assert result.ok
        plan = project.runner.plans[-1]
        assert plan.working_directory == str(place)
        assert plan.trace.execution_id == result.execution_id
        contract, _mould = asked[-1]
        assert contract.execution_id == result.execution_id
        assert contract.metadata.requested_at == project.clock.now
        assert contract.inputs.working_directory == str(place)
    assert asked[-1][1] is not None
    mine = {"set": {"execution_id": "mine"}}
    first, second = (runtime.exec("shell", **mine) for _ in range(2))
    assert [mould for _contract, mould in asked[-2:]] == [None, None]
    assert first.execution_id == second.execution_id == "mine"
    assert first.receipt_id == second.receipt_id
    assert len(project.runner.plans) == len(places) + 1


def test_a_tool_that_was_blocked_while_a_request_waited_is_refused(
    runtime: Runtime, project: Project
) -> None:
    """The pins that a request found in force when it came are those of that moment only."""
    keyring = Keyring.open(project.root / ".actum")

    class Slow:
        holds = False

        @contextmanager
        def place(self, contract: Contract) -> Iterator[Got]:
            block(project.root, keyring, "shell", by="user:maker", evidence="t", date="2026-11-15")
            yield Got.AFTER_A_WAIT

    for _ in range(3):
        assert runtime.exec("shell", cwd=project.work).ok
    refused = runtime.exec("shell", cwd=project.work, turn=Slow())
    assert refused.reason_codes == ("TOOL_NOT_ACTIVE",)
    assert len(project.runner.plans) == 3


def test_a_tool_that_was_blocked_while_people_decided_is_refused(
    runtime: Runtime, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = Keyring.open(project.root / ".actum")
    answers = [True, False]

    def decided(*_: Any) -> bool:
        block(project.root, keyring, "shell", by="user:maker", evidence="t", date="2026-11-15")
        return answers.pop(0)

    words = {"cwd": project.work, "set": elevated("/etc/hostname")}
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


def test_few_are_kept(runtime: Runtime) -> None:
    few = module.Asked(runtime.rooms.registry, runtime._parsed, most=3)
    runtime.exec("shell")
    words: list[Any] = [getattr(module.Ask(tool="shell"), name) for name in module._WORDS]
    at = module._WORDS.index("stdin")
    for number in range(10):
        words[at] = str(number)
        few.sections(*words)
        assert len(few._kept) <= 3
    few._kept.clear()
    words[at] = "x" * 100_000
    assert few.sections(*words).stdin == b"x" * 100_000
    assert not few._kept
