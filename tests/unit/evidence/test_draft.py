"""What is written down before the start says everything that it was allowed by."""

from __future__ import annotations

import json

from actum.contract.call import Check, CheckResult
from actum.evidence.records.opening import OpeningRecord
from actum.value import replace

from .factories import RESULT, House, bad, make_contract, make_facts, make_intent, make_refusal


def test_two_executions_that_rest_on_one_decision_are_told_apart() -> None:
    first = make_intent()
    second = replace(first, contract=make_contract(), trace_id="other")
    one, two = OpeningRecord(first), OpeningRecord(second)
    assert json.loads(one.predicate)["policy"] == json.loads(two.predicate)["policy"]
    assert one.audit["execution_id"] == first.execution_id != two.audit["execution_id"]
    assert json.loads(two.predicate)["trace_id"] == "other"


def test_every_part_of_a_decision_is_in_its_records() -> None:
    intent = make_intent()
    assert intent.tool
    assert intent.adapter
    before = OpeningRecord(intent)
    changed = {
        "tool": replace(intent.tool, version="9.9.9"),
        "adapter": replace(intent.adapter, status="deprecated"),
        "checks": (Check(code="IV-01", result=CheckResult.BLOCKED),),
        "foreseen": (),
        "policy": None,
        "proof": None,
    }
    for name, value in changed.items():
        after = OpeningRecord(replace(intent, **{name: value}))
        assert (after.pre, after.predicate, after.audit) != (
            before.pre,
            before.predicate,
            before.audit,
        ), name


def test_a_refusal_takes_nothing_from_what_was_allowed(house: House) -> None:
    house.execute()
    refusal = make_refusal()
    house.ledger.seal(refusal, None)
    (record,) = house.records.of_execution(refusal.execution_id)
    assert {line["verdict"] for line in record["checklists"]["during_execution"]} == {"not_reached"}
    intent = make_intent()
    house.ledger.seal(make_facts(intent, opened=house.ledger.write_ahead(intent)), RESULT)
    assert bad(house.verifier.verify_all()) == []
