"""The shipped executors: reviewed like any other, and each does what its file says."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pure_house import PureHouse

from actum.contract.outcome import ActionStatus
from actum.contract.parse import parse_contract
from actum.executors.executor_registry import Source, shipped_sources
from actum.executors.modules import ALLOWED
from actum.executors.plane import shipped_reviews
from actum.executors.reasons import Reason
from actum.executors.review import examine
from actum.executors.verdicts import contract_sha256


@pytest.mark.req("001-75")
def test_the_package_brings_a_verdict_for_every_shipped_file_and_no_other() -> None:
    reviews = {review.file: review for review in shipped_reviews()}
    sources = {source.file: source for source in shipped_sources()}
    assert set(reviews) == set(sources)
    assert len(sources) == 7
    for file, review in reviews.items():
        assert review.approved
        assert review.source_sha256 == sources[file].sha256
        assert review.contract == contract_sha256()


@pytest.mark.req("001-73", "001-75")
@pytest.mark.parametrize("source", list(shipped_sources()), ids=lambda source: source.file)
def test_the_gate_still_says_the_same_about_it(source: Source) -> None:
    (kept,) = (review for review in shipped_reviews() if review.file == source.file)
    again = examine(source.content, file=source.file, by=kept.by, at=kept.at)
    assert again.document() == kept.document()


def _value(house: PureHouse, action: str, payload: dict[str, Any]) -> Any:
    result = house.act(action, payload)
    assert result.status is ActionStatus.SUCCESS, (result, house.plane.note(result))
    return house.plane.value(result)


def _fails(house: PureHouse, action: str, payload: dict[str, Any]) -> str:
    result = house.act(action, payload)
    assert result.status is ActionStatus.FAILED
    note = house.plane.note(result)
    assert note is not None
    return note.kind


@pytest.mark.parametrize(
    ("operation", "text", "output"),
    [
        ("upper", "straße", "STRASSE"),
        ("lower", "ÀB", "àb"),
        ("title", "a b", "A B"),
        ("trim", "  a ", "a"),
        ("squeeze", "a \n b", "a b"),
        ("reverse", "abc", "cba"),
        ("lines", "a\nb", ["a", "b"]),
        ("normalize", "e\u0301", "é"),
        ("slug", "Crème Brûlée!", "creme-brulee"),
        ("count", "a b\nc", {"characters": 5, "words": 3, "lines": 2}),
    ],
)
def test_text_process(house: PureHouse, operation: str, text: str, output: Any) -> None:
    assert _value(house, "text_process", {"text": text, "operation": operation}) == output


def test_text_process_refuses_what_is_no_text(house: PureHouse) -> None:
    assert _fails(house, "text_process", {"text": 5}) == "TypeError"
    assert _fails(house, "text_process", {"text": "a", "operation": "shred"}) == "KeyError"


@pytest.mark.parametrize(
    ("fact", "operator", "value", "matched"),
    [
        (1, "eq", 1, True),
        (1, "eq", 1.0, True),
        (1, "eq", True, False),
        ("1", "eq", 1, False),
        (None, "eq", None, True),
        ([1], "eq", [1], True),
        (1, "ne", 2, True),
        (1, "ne", True, True),
        (2, "gt", 1, True),
        (1, "gt", 1, False),
        ("b", "gt", "a", True),
        (1, "lt", 2, True),
        ("abc", "contains", "b", True),
        ([1, "a"], "contains", "a", True),
        ([1], "contains", True, False),
        ("a", "in", ["a", "b"], True),
        (1, "in", [True], False),
    ],
)
def test_rule_evaluate_compares_strictly(
    house: PureHouse, fact: Any, operator: str, value: Any, matched: bool
) -> None:
    rules = [{"name": "r", "field": "f", "operator": operator, "value": value}]
    answer = _value(house, "rule_evaluate", {"facts": {"f": fact}, "rules": rules})
    assert answer == {"matched": matched, "rules": {"r": matched}}


@pytest.mark.parametrize(
    ("fact", "operator", "value"),
    [(1, "gt", "0"), (True, "gt", 0), ([], "lt", []), (5, "contains", 5), ("a", "in", "abc")],
)
def test_rule_evaluate_refuses_to_compare_unlike_things(
    house: PureHouse, fact: Any, operator: str, value: Any
) -> None:
    rules = [{"name": "r", "field": "f", "operator": operator, "value": value}]
    assert _fails(house, "rule_evaluate", {"facts": {"f": fact}, "rules": rules}) == "TypeError"


def test_rule_evaluate_modes_paths_and_missing_facts(house: PureHouse) -> None:
    rules = [
        {"name": "yes", "field": "a.b", "operator": "eq", "value": 1},
        {"name": "gone", "field": "a.c", "operator": "ne", "value": 1},
    ]
    facts = {"a": {"b": 1}}
    assert _value(house, "rule_evaluate", {"facts": facts, "rules": rules})["matched"] is False
    anyway = {"facts": facts, "rules": rules, "mode": "any"}
    assert _value(house, "rule_evaluate", anyway)["matched"] is True
    assert _value(house, "rule_evaluate", {"facts": facts, "rules": []}) is None


@pytest.mark.parametrize(
    ("value", "step", "output"),
    [
        ({"a": {"b": 1}, "c": 2}, {"op": "pick", "paths": ["a.b"]}, {"a": {"b": 1}}),
        ({"a": 1, "b": 2}, {"op": "drop", "paths": ["a", "x"]}, {"b": 2}),
        ({"a": [10, 20]}, {"op": "get", "path": "a.1"}, 20),
        ({}, {"op": "set", "path": "a.b", "to": [1]}, {"a": {"b": [1]}}),
        ({"a": 1}, {"op": "rename", "from": "a", "to": "b"}, {"b": 1}),
        ([{"a": 1}, {"a": 2}], {"op": "map", "path": "a"}, [1, 2]),
        ([3, 1, 2], {"op": "sort", "descending": True}, [3, 2, 1]),
        ([[1], [2, 3]], {"op": "flatten"}, [1, 2, 3]),
        ([{"k": "x"}, {"k": "x"}], {"op": "group", "path": "k"}, {"x": [{"k": "x"}, {"k": "x"}]}),
        ({"b": 1, "a": 2}, {"op": "keys"}, ["a", "b"]),
        ([1, 2], {"op": "count"}, 2),
    ],
)
def test_json_transform(house: PureHouse, value: Any, step: Any, output: Any) -> None:
    assert _value(house, "json_transform", {"value": value, "steps": [step]}) == output


def test_json_transform_never_guesses(house: PureHouse) -> None:
    for value, step in (
        ({"a": 1}, {"op": "get", "path": "b"}),
        (5, {"op": "map", "path": "a"}),
        ({}, {"op": "shred"}),
        ([{"k": 1}], {"op": "group", "path": "k"}),
    ):
        _fails(house, "json_transform", {"value": value, "steps": [step]})


@pytest.mark.parametrize(
    ("schema", "good", "bad", "keyword"),
    [
        ({"type": "integer"}, 1.0, 1.5, "type"),
        ({"type": ["string", "null"]}, None, 1, "type"),
        ({"type": "number"}, 1, True, "type"),
        ({"enum": [1, "a"]}, 1.0, True, "enum"),
        ({"const": {"a": 1}}, {"a": 1}, {"a": 2}, "const"),
        ({"minLength": 2}, "éé", "é", "minLength"),
        ({"maxItems": 1}, [1], [1, 2], "maxItems"),
        ({"uniqueItems": True}, [1, "1"], [{"a": 1}, {"a": 1}], "uniqueItems"),
        ({"pattern": "^a+$"}, "aa", "ab", "pattern"),
        ({"multipleOf": 0.1}, 0.3, 0.35, "multipleOf"),
        ({"exclusiveMaximum": 3}, 2.9, 3, "exclusiveMaximum"),
        ({"required": ["a"]}, {"a": 1}, {}, "required"),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, 6, 4, "anyOf"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, 4, 6, "oneOf"),
        ({"not": {"type": "null"}}, 1, None, "not"),
        ({"propertyNames": {"pattern": "^x"}}, {"xa": 1}, {"a": 1}, "propertyNames"),
        (
            {"properties": {"a": True}, "additionalProperties": False},
            {"a": 1},
            {"b": 1},
            "additionalProperties",
        ),
        (
            {"prefixItems": [{"type": "string"}], "items": {"type": "null"}},
            ["a", None],
            ["a", 1],
            "type",
        ),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}}, None, 1, "type"),
    ],
)
def test_schema_validate(house: PureHouse, schema: Any, good: Any, bad: Any, keyword: str) -> None:
    assert _value(house, "schema_validate", {"schema": schema, "value": good})["valid"] is True
    answer = _value(house, "schema_validate", {"schema": schema, "value": bad})
    assert [error["keyword"] for error in answer["errors"]] == [keyword]


def test_schema_validate_agrees_with_a_real_validator(house: PureHouse) -> None:
    import jsonschema_rs

    schema = {
        "type": "object",
        "required": ["name", "tags"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
            "more": {"anyOf": [{"type": "null"}, {"type": "object", "maxProperties": 1}]},
        },
        "additionalProperties": False,
    }
    values: list[Any] = [
        {"name": "x", "tags": []},
        {"name": "", "tags": ["a"]},
        {"name": "x", "tags": ["c"]},
        {"name": "x", "tags": ["a"] * 4},
        {"name": "x", "tags": [], "more": {"a": 1, "b": 2}},
        {"name": "x", "tags": [], "extra": 1},
        {"tags": []},
        [],
    ]
    judge = jsonschema_rs.validator_for(schema)
    for value in values:
        answer = _value(house, "schema_validate", {"schema": schema, "value": value})
        assert answer["valid"] == judge.is_valid(value), value


def test_schema_validate_refuses_a_rule_it_does_not_understand(house: PureHouse) -> None:
    unknown = {"schema": {"contains": {}}, "value": []}
    assert _fails(house, "schema_validate", unknown) == "ValueError"
    away = {"schema": {"$ref": "https://example.org/x"}, "value": []}
    assert _fails(house, "schema_validate", away) == "ValueError"


def test_contract_compile_writes_a_contract_that_the_runner_plane_reads(house: PureHouse) -> None:
    wish = {
        "tool_id": "TL-003",
        "command": "rg",
        "parameters": {"pattern": "a|b"},
        "timeout_ms": 5000,
        "memory_mb": 128,
        "filesystem": "minimal",
        "network": "offline",
        "max_children": 0,
        "purpose": "look something up",
        "output_files": ["out.txt"],
    }
    contract = _value(house, "contract_compile", wish)
    draft = parse_contract(contract)
    assert draft.document["inputs"]["parameters"] == {"pattern": "a|b"}
    assert contract["sandbox"] == {
        "timeout_ms": 5000,
        "memory_mb": 128,
        "filesystem": {"level": "minimal"},
        "network": {"level": "offline"},
        "processes": {"max_children": 0},
    }
    assert contract["outputs"] == {"output_files": ["out.txt"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory_mb": 63},
        {"timeout_ms": 600_001},
        {"cpu_cores": True},
        {"network": "everything"},
        {"tool_id": "rm"},
        {"sudo": True},
        {"arguments": "-rf"},
    ],
)
def test_contract_compile_refuses_what_no_contract_may_say(house: PureHouse, wrong: Any) -> None:
    _fails(house, "contract_compile", {"tool_id": "TL-001", "command": "git", **wrong})


# --- plans


def _plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"steps": list(steps), **more}


def test_a_plan_runs_its_steps_in_order_and_tells_a_digest_for_each(house: PureHouse) -> None:
    plan = _plan(
        {"name": "shout", "action": "process", "merge": "merge_under", "under": "text"},
        {"name": "turn", "action": "process", "payload": {"operation": "reverse"}},
        input={"text": "abc"},
    )
    result = house.act("composite_run", plan)
    assert result.status is ActionStatus.SUCCESS
    value = house.plane.value(result)
    assert value["output"] == {"value": "CBA"}
    first, second = value["steps"]
    assert (first["name"], second["name"]) == ("shout", "turn")
    alone = house.act("process", {"text": "abc"})
    assert (first["input_digest"], first["output_digest"]) == (
        alone.input_digest,
        alone.output_digest,
    )
    records = [json.loads(row[0]) for row in house.database.rows("SELECT record FROM audit")]
    finals = [
        each["executor_id"]
        for each in records
        if each.get("trace_id") == result.trace_id and each.get("status") == "SUCCESS"
    ]
    assert finals == ["text_process", "text_process", "composite_plan"]


def test_a_plan_collects_results_and_never_passes_raw_conversation_on(house: PureHouse) -> None:
    plan = _plan(
        {
            "name": "make",
            "action": "json_transform",
            "payload": {"value": {"keep": 1, "prompt": "secret talk", "messages": []}, "steps": []},
            "merge": "append_results",
        },
        input={},
    )
    value = house.plane.value(house.act("composite_plan", plan))
    assert value["output"]["results"] == [{"keep": 1}]


def test_a_step_that_does_not_succeed_ends_the_plan(house: PureHouse) -> None:
    plan = _plan(
        {"name": "good", "action": "noop"},
        {"name": "bad_one", "action": "process", "payload": {"text": 5}},
        {"name": "never", "action": "noop"},
    )
    result = house.act("composite_run", plan)
    assert (result.status, result.reason_codes) == (
        ActionStatus.FAILED,
        ("COMPOSITE_STEP_FAILED:bad_one", "EXECUTOR_EXCEPTION"),
    )
    unknown = house.act("composite_run", _plan({"name": "a", "action": "nobody"}))
    assert unknown.reason_codes == ("COMPOSITE_STEP_FAILED:a", "ACTION_UNKNOWN")


@pytest.mark.parametrize(
    "plan",
    [
        _plan(*({"name": f"s{n}", "action": "noop"} for n in range(9))),
        _plan({"name": "a", "action": "noop"}, {"name": "b", "action": "noop"}, max_steps=1),
        _plan({"name": "a", "action": "noop"}, {"name": "a", "action": "noop"}),
        _plan({"name": "A", "action": "noop"}),
        _plan({"name": "a", "action": "noop", "merge": "shred"}),
        _plan({"name": "a", "action": "noop", "shell": "x"}),
        _plan({"name": "a", "action": "noop"}, max_total_payload_bytes=65_537),
        {"steps": [], "more": 1},
        {},
    ],
)
def test_a_plan_out_of_its_bounds_is_refused(house: PureHouse, plan: Any) -> None:
    result = house.act("composite_run", plan)
    assert result.reason_codes == ("EXECUTOR_EXCEPTION", "PLAN_VALIDATION")


def test_a_plan_in_a_plan_is_refused_and_so_is_too_much_payload(house: PureHouse) -> None:
    nested = _plan({"name": "inner", "action": "composite_run"}, input={"steps": []})
    codes = house.act("composite_run", nested).reason_codes
    assert codes == ("COMPOSITE_STEP_FAILED:inner", "PLAN_VALIDATION")
    bounded = _plan({"name": "a", "action": "noop", "payload": {"t": "x" * 50}})
    too_much = house.act("composite_run", {**bounded, "max_total_payload_bytes": 40})
    assert (too_much.status, too_much.reason_codes) == (ActionStatus.BLOCKED, ("LIMIT_EXCEEDED",))


def test_a_plan_without_steps_has_no_output(house: PureHouse) -> None:
    assert _value(house, "composite_run", {"steps": []}) is None


def test_a_secret_of_a_plan_does_not_come_out_of_it(house: PureHouse) -> None:
    plan = _plan(
        {
            "name": "give",
            "action": "json_transform",
            "payload": {
                "value": {"token": "hunter2-hunter2"},
                "steps": [{"op": "get", "path": "token"}],
            },
        }
    )
    codes = house.act("composite_run", plan).reason_codes
    assert codes == ("COMPOSITE_STEP_FAILED:give", "SECRET_IN_OUTPUT")


EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "executors").glob("*.py"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_pass_the_gate(file: Path) -> None:
    review = examine(file.read_bytes(), file=file.name, by="x", at=datetime.now(UTC))
    assert review.approved, [check for check in review.checks if not check.passed]


def test_the_examples_work_as_their_page_says(own_house: PureHouse) -> None:
    folder = own_house.root / "executors"
    for file in (*EXAMPLES, EXAMPLES[0].with_name("actions.toml")):
        shutil.copy(file, folder)
    assert own_house.plane.review(folder / "invoice_total.py", by="user:x").approved
    payload = {"currency": "EUR", "lines": [{"quantity": "3", "unit_price": "0.10"}]}
    result = own_house.plane.act({"action": "bill", "payload": payload}, profile="accounting")
    assert own_house.plane.value(result)["gross"] == "0.30"


def test_the_page_lists_every_reason_and_every_module() -> None:
    page = (Path(__file__).parents[3] / "docs" / "executors.md").read_text()
    marks = {Reason.EXECUTION_ATTEMPT}
    assert [
        reason for reason in Reason if reason not in marks and f"`{reason.value}" not in page
    ] == []
    assert [name for name in ALLOWED if name.split(".")[0] not in page] == []
