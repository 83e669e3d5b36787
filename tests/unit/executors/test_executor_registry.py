"""Where executors come from, what routes to them, and the gate in front."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pure_house import PureHouse, wrapped

from actum.contract.outcome import ActionStatus
from actum.errors import ContractInvalid
from actum.evidence.records.audit import Decision
from actum.executors import actions
from actum.executors.actions import Action, Actions, Profile
from actum.executors.gate import Question, decide
from actum.executors.values import KEPT_VALUES, SessionValues

ANSWER = "def execute(req):\n    return 'from a package'\n"


def _package(folder: Path, source: bytes) -> None:
    """An installed distribution with an entry point, whose import would be noticed."""
    package = folder / "outsider"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported into the host')")
    (package / "answer.py").write_bytes(source)
    info = folder / "outsider-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outsider\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[actum.executors]\nanswer = outsider.answer\n")
    (info / "RECORD").write_text("outsider/__init__.py,,\noutsider/answer.py,,\n")


def test_a_package_may_offer_an_executor_but_only_a_verdict_lets_it_in(
    own_house: PureHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = wrapped("answer", ANSWER)
    folder = tmp_path / "site"
    folder.mkdir()
    _package(folder, source)
    monkeypatch.syspath_prepend(str(folder))
    own_house.reopen()
    (refused,) = own_house.plane.registry.not_registered
    assert (refused.code, refused.origin) == (
        "EXECUTOR_NOT_REVIEWED",
        "entry point answer of outsider",
    )
    own_house.put("answer", source)
    (own_house.root / "executors" / "answer.py").unlink()  # the package's copy is the only one
    own_house.reopen()
    result = own_house.act("answer")
    assert own_house.plane.value(result) == "from a package"
    assert "outsider" not in sys.modules


@pytest.mark.req("001-75")
def test_the_bytes_that_run_are_the_bytes_that_were_registered(own_house: PureHouse) -> None:
    own_house.put("stable", wrapped("stable", "def execute(req):\n    return 'reviewed'\n"))
    own_house.reopen()
    assert own_house.plane.value(own_house.act("stable")) == "reviewed"
    file = own_house.root / "executors" / "stable.py"
    file.write_bytes(wrapped("stable", "def execute(req):\n    return 'swapped'\n"))
    assert own_house.plane.value(own_house.act("stable")) == "reviewed"
    own_house.reopen()
    assert own_house.act("stable").reason_codes == ("ACTION_UNKNOWN",)


def test_tests_and_private_files_are_not_taken_for_executors(own_house: PureHouse) -> None:
    for name in ("test_x.py", "_helper.py", "notes.txt"):
        (own_house.root / "executors" / name).write_text("")
    own_house.reopen()
    assert own_house.plane.registry.not_registered == ()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[other]\nx = 1", "other"),
        ("[actions.Bad]\nexecutor = 'noop'", "actions.Bad"),
        ("[actions.noop]\nexecutor = 'text_process'", "actions.noop"),
        ("[actions.process]\nexecutor = 'noop'", "actions.process"),
        ("[actions.a]\naction_version = '1.0.0'", "actions.a.executor"),
        ("[actions.a]\nexecutor = 'noop'\nroot = true", "actions.a.root"),
        (
            "[actions.a]\nexecutor = 'noop'\nrequired_capabilities = 'X'",
            "actions.a.required_capabilities",
        ),
        ("[actions.a]\nexecutor = 5", "actions.a.executor"),
        ("[profiles.p]\ndeny = []", "profiles.p"),
        ("[profiles.p]\nallow = 'all'", "profiles.p"),
        ("[profiles]\np = 1", "profiles.p"),
        ("= broken", ""),
    ],
)
def test_actions_toml_is_read_strictly(own_house: PureHouse, text: str, field: str) -> None:
    (own_house.root / "executors" / "actions.toml").write_text(text)
    own_house.reopen()
    with pytest.raises(ContractInvalid) as caught:
        own_house.act("noop")
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.req("001-8")
def test_capabilities_an_action_asks_for_are_normalised() -> None:
    action = Action(name="a", executor_id="b", required_capabilities=(" text ", "TEXT", "b"))
    assert action.required_capabilities == ("B", "TEXT")


@pytest.mark.req("001-66")
def test_the_fingerprint_of_the_actions_changes_with_any_of_them() -> None:
    one = Action(name="a", executor_id="b", action_version="1.0.0")
    two = Action(name="a", executor_id="c", action_version="1.0.0")
    assert Actions(actions={"a": one}).fingerprint != Actions(actions={"a": two}).fingerprint
    assert Profile(profile_id="p", allow=("a",)).hash != Profile(profile_id="p", allow=()).hash


def test_a_rule_that_fails_to_answer_denies() -> None:
    def broken(_question: Question) -> None:
        raise RuntimeError

    question = Question(
        action="noop",
        profile=Profile(profile_id="default"),
        actions=Actions(actions={"noop": Action(name="noop", executor_id="noop")}),
    )
    assert decide(question).decision is Decision.ALLOW
    verdict = decide(question, (broken,))
    assert verdict.decision is Decision.DENY
    assert verdict.reason_codes == ("RULE_EXCEPTION_FAIL_CLOSED",)


def test_every_executor_is_an_action_of_its_own_name(house: PureHouse) -> None:
    known = house.plane.registry.actions.actions
    assert set(house.plane.registry.executors) <= set(known)
    assert {action.name for action in actions.SHIPPED} <= set(known)


def test_only_the_newest_values_of_a_session_are_kept(house: PureHouse) -> None:
    values = SessionValues()
    for number in range(KEPT_VALUES + 10):
        values.keep(f"{number}", b"1")
    assert len(values._values) == KEPT_VALUES
    assert "0" not in values._values
    values.keep("large", b"x" * (40 << 20))
    assert list(values._values) == ["large"]
    result = house.act("noop")
    assert (result.status, values.value(result)) == (ActionStatus.SUCCESS, None)
