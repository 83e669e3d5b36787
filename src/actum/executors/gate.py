"""The gate: may this be asked at all? Rules in order, the first objection decides, default deny.

A rule that fails to answer denies. The gate sees names and digests only, never a payload, and reads
no clock and no environment: the same request under the same profile is always judged the same.
"""

from __future__ import annotations

from collections.abc import Callable

from actum.evidence.audit import Decision
from actum.executors.actions import Actions, Profile
from actum.executors.reasons import Reason
from actum.value import value


@value
class Question:
    """All that the gate may know."""

    action: str
    profile: Profile | None
    actions: Actions


@value
class Verdict:
    decision: Decision
    reason_codes: tuple[str, ...]  #: empty on ALLOW
    matched_rules: tuple[str, ...]  #: every rule that was asked, the deciding one last


Rule = Callable[[Question], Reason | None]


def action_is_known(question: Question) -> Reason | None:
    return None if question.action in question.actions.actions else Reason.ACTION_UNKNOWN


def profile_allows_action(question: Question) -> Reason | None:
    allowed = question.profile is not None and question.profile.allows(question.action)
    return None if allowed else Reason.PROFILE_ACTION_MISMATCH


RULES: tuple[Rule, ...] = (action_is_known, profile_allows_action)


def decide(question: Question, rules: tuple[Rule, ...] = RULES) -> Verdict:
    asked: list[str] = []
    for rule in rules:
        asked.append(rule.__name__)
        try:
            objection = rule(question)
        except Exception:  # noqa: BLE001 -- whatever went wrong, it is not an ALLOW
            objection = Reason.RULE_EXCEPTION_FAIL_CLOSED
        if objection is not None:
            return Verdict(
                decision=Decision.DENY,
                reason_codes=(objection.value,),
                matched_rules=tuple(asked),
            )
    return Verdict(decision=Decision.ALLOW, reason_codes=(), matched_rules=tuple(asked))
