"""The gate: decides whether an action may be requested. Ordered rules; the first objection decides.

The default is deny, also for a rule that raises. The gate sees names and digests only, never a
payload, and reads no clock and no environment: its decision depends on request and profile only.
"""

from __future__ import annotations

from collections.abc import Callable

from actum.evidence.records.audit import Decision
from actum.executors.actions import Actions, Profile
from actum.executors.reasons import Reason
from actum.value import value


@value
class Question:
    """The input of the gate."""

    action: str
    profile: Profile | None
    actions: Actions


@value
class Verdict:
    decision: Decision
    reason_codes: tuple[str, ...]  #: empty on ALLOW
    matched_rules: tuple[str, ...]  #: every rule that was evaluated, the deciding one last


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
