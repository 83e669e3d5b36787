from __future__ import annotations

from typing import Any

import pytest
from policy.factories import make_cli, make_contract, make_entry, make_scope

from actum.adapters.cli import build_call
from actum.contract.call import Argument
from actum.errors import Refused, Violation


def argv(**inputs: Any) -> tuple[str, ...]:
    return build_call(make_contract(**inputs), make_entry()).argv


def refusal(entry: Any = None, **inputs: Any) -> tuple[Violation, ...]:
    with pytest.raises(Refused) as refused:
        build_call(make_contract(**inputs), entry or make_entry())
    assert refused.value.code == "ARGS_INVALID"
    assert all(violation.code == "ARGS_INVALID" for violation in refused.value.violations)
    return refused.value.violations


@pytest.mark.req("000-96", "000-97", "000-129", "000-130", "000-131", "000-132")
def test_the_seeds_ripgrep_adapter_gives_the_exact_command_line() -> None:
    assert argv(
        parameters={"path": "src dir", "max_count": 5, "pattern": "a b", "ignore_case": True}
    ) == ("rg", "--json", "--no-heading", "-i", "-m", "5", "--", "a b", "src dir")


@pytest.mark.req("000-131")
@pytest.mark.parametrize("value", [False, None])
def test_a_switch_that_is_not_true_is_left_out(value: bool | None) -> None:
    schema = {"type": "object"}
    call = build_call(
        make_contract(parameters={"pattern": "x", "ignore_case": value}),
        make_entry(args_schema=schema),
    )
    assert "-i" not in call.argv


@pytest.mark.req("000-133")
def test_without_env_mapping_no_variable_comes_from_a_parameter() -> None:
    call = build_call(make_contract(parameters={"pattern": "x", "path": "y"}), make_entry())
    assert call.environment == {}


def test_env_mapping_turns_a_parameter_into_a_variable_and_not_into_an_argument() -> None:
    entry = make_entry(
        cli=make_cli(env_mapping={"colour": "RG_COLOUR"}),
        args_schema={"type": "object"},
    )
    call = build_call(
        make_contract(parameters={"colour": "-red"}, environment={"OTHER": "1"}), entry
    )
    assert call.environment == {"OTHER": "1", "RG_COLOUR": "-red"}
    assert call.argv == ("rg", "--json", "--no-heading")


@pytest.mark.req("000-6")
def test_raw_arguments_stay_separate_elements_in_their_order() -> None:
    raw = ("-n", "a b", "", "z", "a b")
    assert argv(arguments=raw) == ("rg", "--json", "--no-heading", *raw)


def test_raw_arguments_come_after_what_parameters_render_to() -> None:
    assert argv(parameters={"pattern": "x"}, arguments=("--pre=sh",)) == (
        "rg", "--json", "--no-heading", "--", "x", "--pre=sh",
    )  # fmt: skip


def test_options_alone_get_no_double_dash() -> None:
    entry = make_entry(args_schema={"type": "object"})
    call = build_call(make_contract(parameters={"max_count": 2}, arguments=("x",)), entry)
    assert call.argv == ("rg", "--json", "--no-heading", "-m", "2", "x")


def test_only_what_the_adapter_wrote_itself_counts_as_fixed() -> None:
    call = build_call(
        make_contract(parameters={"pattern": "x", "max_count": 3, "path": "p"}, arguments=("r",)),
        make_entry(),
    )
    assert [(a.value, a.fixed, a.literal, a.path) for a in call.arguments] == [
        ("--json", True, False, False),
        ("--no-heading", True, False, False),
        ("-m", True, False, False),
        ("3", False, False, False),
        ("--", True, False, False),
        ("x", False, True, False),
        ("p", False, False, True),
        ("r", False, False, False),
    ]


def test_raw_arguments_take_their_marks_from_the_schemas_arguments() -> None:
    schema = {"properties": {"arguments": {"items": {"x-actum": ["literal", "path"]}}}}
    call = build_call(make_contract(arguments=("a*",)), make_entry(args_schema=schema))
    assert call.arguments[-1] == Argument(
        value="a*", field="inputs.arguments[0]", literal=True, path=True
    )


def test_a_list_becomes_one_element_each() -> None:
    entry = make_entry(args_schema={"properties": {"path": {"items": {"x-actum": "path"}}}})
    call = build_call(make_contract(parameters={"pattern": "x", "path": ["a", "b c"]}), entry)
    assert [(a.value, a.field, a.path) for a in call.arguments[-2:]] == [
        ("a", "inputs.parameters.path[0]", True),
        ("b c", "inputs.parameters.path[1]", True),
    ]


def test_a_value_inside_an_element_is_told_apart_from_the_adapters_text() -> None:
    entry = make_entry(cli=make_cli(arg_mapping={"glob": "--glob={value}!"}), args_schema={})
    argument = build_call(make_contract(parameters={"glob": "*.py"}), entry).arguments[-1]
    assert (argument.value, argument.given) == ("--glob=*.py!", "*.py")


@pytest.mark.parametrize(
    ("value", "text"), [(5, "5"), (5.0, "5"), (0.1, "0.1"), (True, "true"), (1e21, "1e+21")]
)
def test_numbers_have_one_canonical_spelling(value: object, text: str) -> None:
    entry = make_entry(args_schema={})
    assert build_call(make_contract(parameters={"max_count": value}), entry).argv[-1] == text


def test_every_broken_parameter_is_reported_in_one_answer() -> None:
    found = refusal(parameters={"max_count": 0, "colour": "red", "path": 7, "ignore_case": "yes"})
    assert {violation.field for violation in found} == {
        "inputs.parameters",  # pattern is missing
        "inputs.parameters.max_count",
        "inputs.parameters.colour",
        "inputs.parameters.path",
        "inputs.parameters.ignore_case",
    }


def test_an_unknown_parameter_is_named_together_with_the_known_ones() -> None:
    (violation,) = refusal(parameters={"pattern": "x", "patern": "y"})
    assert violation.field == "inputs.parameters.patern"
    assert "ignore_case, max_count, path, pattern" in violation.message


@pytest.mark.parametrize("value", ["-e", "--pre=sh", "-"])
def test_a_value_that_starts_with_a_dash_is_refused_unless_literal(value: str) -> None:
    (violation,) = refusal(parameters={"pattern": "x", "path": value})
    assert (violation.field, violation.value) == ("inputs.parameters.path", value)
    assert argv(parameters={"pattern": value})[-2:] == ("--", value)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"pattern": "a\0b"}, "NUL"),
        ({"pattern": {"a": 1}}, "string, number or boolean"),
        ({"pattern": [["a"]]}, "string, number or boolean"),
        ({"pattern": "x", "max_count": [1, 2]}, "not a list"),
        ({"pattern": "x", "max_count": float("nan")}, "not a JSON number"),
        ({"pattern": "x", "max_count": 2**53}, "2^53"),
        ({"pattern": "x", "ignore_case": "true"}, "true or false"),
    ],
)
def test_what_cannot_become_an_argument_is_refused(parameters: Any, says: str) -> None:
    (violation,) = refusal(make_entry(args_schema={}), parameters=parameters)
    assert says in violation.message


def test_a_schema_message_never_repeats_the_value() -> None:
    schema = {"properties": {"pattern": {"type": "string", "maxLength": 3}}}
    (violation,) = refusal(make_entry(args_schema=schema), parameters={"pattern": "hunter2"})
    assert "hunter2" not in f"{violation}"


def test_the_schemas_arguments_restrict_raw_ones() -> None:
    schema = {"properties": {"arguments": {"type": "array", "maxItems": 1}}}
    (violation,) = refusal(make_entry(args_schema=schema), arguments=("a", "b"))
    assert violation.field == "inputs.arguments"


def test_a_required_raw_argument_cannot_be_left_out() -> None:
    schema = {"properties": {"arguments": {"type": "array"}}, "required": ["arguments"]}
    entry = make_entry(args_schema=schema)
    assert build_call(make_contract(arguments=("a",)), entry).argv[-1] == "a"
    assert "arguments" in refusal(entry)[0].message


def test_a_required_parameter_cannot_be_left_out_of_a_call_with_parameters() -> None:
    assert "pattern" in refusal(parameters={"path": "x"}, arguments=("y",))[0].message
    assert "pattern" in refusal()[0].message


def test_what_is_run_is_the_adapters_executable_whatever_the_contract_says() -> None:
    entry = make_entry(scope=make_scope(commands=("rg", "sh")))
    call = build_call(make_contract(command="sh", arguments=("x",)), entry)
    assert call.program == "rg"


@pytest.mark.parametrize(
    ("arguments", "operation"),
    [(("status", "-s"), "git status"), (("push",), "git"), (("-c", "status"), "git")],
)
def test_the_operation_is_the_allowlist_entry_that_permits_it(
    arguments: tuple[str, ...], operation: str
) -> None:
    entry = make_entry(
        cli=make_cli(executable="git", base_args=("--no-pager",), arg_mapping={}),
        scope=make_scope(commands=("git status", "git log")),
        args_schema={},
    )
    call = build_call(make_contract(command="git", arguments=arguments), entry)
    assert call.operation == operation


def test_stdin_is_passed_on_exactly_and_is_empty_when_absent() -> None:
    assert build_call(make_contract(arguments=("x",), stdin=b"\0\xff"), make_entry()).stdin == (
        b"\0\xff"
    )
    assert build_call(make_contract(arguments=("x",)), make_entry()).stdin == b""


def test_a_template_that_cannot_be_used_is_refused_before_anything_else() -> None:
    entry = make_entry(cli=make_cli(arg_mapping={"pattern": "{other}", "path": ""}))
    with pytest.raises(Refused) as refused:
        build_call(make_contract(parameters={"pattern": "x"}), entry)
    assert refused.value.code == "TEMPLATE_INVALID"
    assert len(refused.value.violations) == 2
