"""What rests on one judgement is put together once, and never for another one."""

from __future__ import annotations

import gc
import json

from actum.contract.call import Check, CheckResult
from actum.evidence.draft import _JUDGEMENTS, _judgements, draft
from actum.value import replace

from .factories import RESULT, House, bad, make_contract, make_facts, make_intent, make_refusal


def test_executions_of_one_judgement_share_what_follows_from_it() -> None:
    first = make_intent()
    second = replace(first, contract=make_contract(), trace_id="other")
    one, two = draft(first), draft(second)
    assert one.pre is two.pre
    assert json.loads(one.predicate)["policy"] == json.loads(two.predicate)["policy"]
    assert one.audit["execution_id"] == first.execution_id != two.audit["execution_id"]
    assert json.loads(two.predicate)["trace_id"] == "other"


def test_every_part_of_a_judgement_makes_another_one() -> None:
    intent = make_intent()
    assert intent.tool
    assert intent.adapter
    assert intent.policy
    before = draft(intent)
    changed = {
        "tool": replace(intent.tool, version="9.9.9"),
        "adapter": replace(intent.adapter, status="deprecated"),
        "checks": (Check(code="IV-01", result=CheckResult.BLOCKED),),
        "foreseen": (),
        "policy": None,
        "proof": None,
    }
    for name, value in changed.items():
        other = replace(intent, **{name: value})
        after = draft(other)
        fresh = draft(make_facts(other))  # never from what is kept
        assert after.pre == fresh.pre or name == "checks", name
        assert after.audit == {**fresh.audit, "attempt": after.audit["attempt"]}, name
        assert json.loads(after.predicate) == json.loads(fresh.predicate), name
        assert (after.pre, after.predicate, after.audit) != (
            before.pre,
            before.predicate,
            before.audit,
        ), name


def test_values_that_come_and_go_in_the_same_place_are_told_apart() -> None:
    for number in range(3 * _JUDGEMENTS):
        intent = make_intent()
        assert intent.tool
        intent = replace(intent, tool=replace(intent.tool, version=f"1.0.{number}"))
        assert json.loads(draft(intent).predicate)["tool"]["version"] == f"1.0.{number}"
        del intent
        if number % 100 == 0:
            gc.collect()
    assert len(_judgements._kept) <= _JUDGEMENTS


def test_a_refusal_takes_nothing_from_what_was_allowed(house: House) -> None:
    house.execute()
    refusal = make_refusal()
    house.ledger.seal(refusal, None)
    (record,) = house.records.of_execution(refusal.execution_id)
    assert {line["verdict"] for line in record["checklists"]["during_execution"]} == {"not_reached"}
    intent = make_intent()
    house.ledger.seal(make_facts(intent, opened=house.ledger.write_ahead(intent)), RESULT)
    assert bad(house.verifier.verify_all()) == []
