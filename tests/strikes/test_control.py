"""The same trial with the rules taken out finds the loss: it can fail. Each rule alone prevents it.

The run fails when its engine is set up, which is where interrupts have lost projects; here at the
same moment each time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .lab import ITEM_RUN, Kind, Lab, hooks

pytestmark = pytest.mark.sandbox

_KIND = Kind(ITEM_RUN, exclusive=False)
_RULES = (
    "read-only lower layer",
    "no mount in a room",
    "the one remover",
    "set-up undoes itself",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("control"), "overlay")
    yield lab
    lab.close()


def _wrong(lab: Lab, rules_out: list[str]) -> list[str]:
    unharmed = lab.unharmed(_KIND)
    lab.restore(unharmed.template)
    ended = lab.start(unharmed.words, None, hooks(broken=[*rules_out, "fails when frozen"]))
    assert ended.exit_code != 0, ended.said
    return lab.judge(_KIND, ended)[1]


def test_control_without_the_rules_the_project_is_lost(lab: Lab) -> None:
    assert any(each.startswith("LOST") for each in _wrong(lab, list(_RULES)))


@pytest.mark.req("002-47")
@pytest.mark.parametrize("kept", _RULES)
def test_any_single_rule_keeps_the_project(lab: Lab, kept: str) -> None:
    wrong = _wrong(lab, [rule for rule in _RULES if rule != kept])
    # A room that cannot be removed safely is left: the price of the one rule that held.
    assert [each for each in wrong if not each.startswith("a room was left")] == []


def test_with_all_rules_nothing_is_wrong(lab: Lab) -> None:
    assert _wrong(lab, []) == []
