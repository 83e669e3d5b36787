from __future__ import annotations

import pytest

from actum.documents.document import check, document_of, load_document

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "count": {"type": "integer", "minimum": 2, "maximum": 9},
        "maybe": {"type": ["integer", "null"]},
        "share": {"type": "number"},
        "kind": {"enum": ["cli", "api"]},
        "tags": {"type": "array", "uniqueItems": True, "minItems": 1, "items": {"const": 1}},
        "either": {"oneOf": [{"type": "string"}, {"type": "object", "required": ["x"]}]},
        "named": {"propertyNames": {"pattern": "^[a-z]+$", "x-permitted": "small letters"}},
        "type": {"type": "integer"},
        "shape": {"default": {"type": "integer"}, "enum": [1.0, {"type": "integer"}]},
    },
}


def said(value):
    return [(p.field, p.message, p.permitted) for p in check(document_of(value), SCHEMA)]


@pytest.mark.parametrize(
    ("value", "field", "message", "permitted"),
    [
        ({"count": 1}, "count", "1 is too small.", "integer 2..9"),
        ({"count": 10}, "count", "10 is too large.", "integer 2..9"),
        ({"count": 3.0}, "count", "3.0 is a float, not an integer.", "integer 2..9"),
        ({"count": 3.5}, "count", "3.5 is a float, not an integer.", "integer 2..9"),
        ({"count": 1.0}, "count", "1.0 is a float, not an integer.", "integer 2..9"),
        ({"count": True}, "count", "true is a boolean, not an integer.", "integer 2..9"),
        ({"count": "3"}, "count", '"3" is text, not an integer.', "integer 2..9"),
        ({"maybe": 1.0}, "maybe", "1.0 is a float, not an integer or null.", "an integer or null"),
        ({"type": 1.0}, "type", "1.0 is a float, not an integer.", "an integer"),
        ({"kind": "sdk"}, "kind", '"sdk" is not permitted.', "cli, api"),
        ({"tags": [1, 2]}, "tags[1]", "2 is not permitted.", "1"),
        ({"tags": []}, "tags", "must not be empty.", "1.. items"),
        ({"tags": [1, 1]}, "tags", "lists the same thing twice.", "a list"),
        ({"either": {}}, "either.x", "is missing.", ""),
        (
            {"named": {"A b": 1}},
            'named["A b"]',
            'the name "A b" is not permitted.',
            "small letters",
        ),
    ],
)
def test_each_kind_of_problem_names_field_value_and_what_is_permitted(
    value, field, message, permitted
):
    assert said({"name": "n", **value}) == [(field, message, permitted)]


def test_text_that_should_be_quoted_and_null_get_a_remedy():
    assert "Write it in quotes." in said({"name": 5})[0][1]
    assert "Leave the key out" in said({"name": "n", "count": None})[0][1]


def test_floats_stay_legal_where_a_number_is_asked_for_or_listed():
    assert said({"name": "n", "share": 1.0, "maybe": None, "shape": 1.0}) == []


def test_each_unknown_key_is_a_problem_at_its_own_place_with_a_guess():
    document = load_document("name: n\ncuont: 3\nzzz: 4\n", file="t.yaml")
    guessed, unknown = check(document, SCHEMA)
    assert str(guessed).startswith('t.yaml:2:1: cuont: unknown key; did you mean "count"?')
    assert (unknown.field, unknown.line, unknown.column) == ("zzz", 3, 1)
    assert "kind" in unknown.permitted


def test_a_missing_key_is_reported_where_its_mapping_stands():
    (problem,) = check(load_document("# comment\nkind: cli\n"), SCHEMA)
    assert (problem.field, problem.line, problem.column) == ("name", 2, 1)


def test_the_shown_value_is_short():
    (problem,) = check(document_of({"name": "x" * 10_000}), SCHEMA)
    assert len(problem.value) == 80
    assert len(problem.message) < 120


def test_a_schema_that_points_elsewhere_is_not_fetched(tmp_path):
    elsewhere = tmp_path / "other.json"
    elsewhere.write_text('{"type": "integer"}')
    with pytest.raises(Exception, match=r"other\.json"):
        check(document_of({"a": 1}), {"$ref": elsewhere.as_uri()})


def test_fresh_schemas_do_not_get_an_older_schemas_answer():
    for most in range(200):
        schema = {"properties": {"a": {"type": "integer", "maximum": most}}}
        assert check(document_of({"a": most}), schema) == ()
        assert len(check(document_of({"a": most + 1}), schema)) == 1
