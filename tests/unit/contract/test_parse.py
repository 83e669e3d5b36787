from __future__ import annotations

import json
import subprocess
import sys

import pytest
from jsonschema_rs import meta

from actum.contract.contract_json import schema
from actum.contract.limits import RANGES
from actum.contract.parse import parse_contract

from .asking import FULL, SMALLEST, asked, contract, problems_of

SECTIONS = {
    "timeout_ms": "sandbox",
    "memory_mb": "sandbox",
    "cpu_cores": "sandbox",
    "max_children": "sandbox__processes",
}


def limit(name, value):
    return asked(**{f"{SECTIONS[name]}__{name}": value})


def asked_limit(name, value):
    sandbox = contract(**{f"{SECTIONS[name]}__{name}": value}).sandbox
    return getattr(sandbox.processes if name == "max_children" else sandbox, name)


BOUNDS = [
    pytest.param("timeout_ms", 1000, 600_000, id="timeout_ms", marks=pytest.mark.req("000-32")),
    pytest.param("memory_mb", 64, 4096, id="memory_mb", marks=pytest.mark.req("000-35")),
    pytest.param("cpu_cores", 1, 4, id="cpu_cores", marks=pytest.mark.req("000-38")),
    pytest.param("max_children", 0, 100, id="max_children", marks=pytest.mark.req("000-41")),
]


@pytest.mark.parametrize(("name", "least", "most"), BOUNDS)
def test_limits_are_taken_within_their_bounds_and_refused_just_outside(name, least, most):
    for value in (least, (least + most) // 2, most):
        assert asked_limit(name, value) == value
    for value in (least - 1, most + 1):
        (problem,) = problems_of(limit(name, value))
        assert problem.field == f"{SECTIONS[name]}.{name}".replace("__", ".")
        assert problem.value == str(value)
        assert str(value) in problem.message
        assert problem.permitted == f"integer {least}..{most}"


@pytest.mark.req("000-43")
@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", [True, False, "2000", "", None, 1.5, [2000], {"ms": 2000}])
def test_a_limit_that_is_not_an_integer_is_refused_with_field_value_and_range(name, value):
    (problem,) = problems_of(limit(name, value))
    assert problem.field.endswith(name)
    assert problem.value == json.dumps(value)
    assert problem.value in problem.message
    assert problem.permitted == str(RANGES[name])


@pytest.mark.req("000-43")
@pytest.mark.parametrize("name", RANGES)
def test_a_float_equal_to_a_legal_integer_is_still_no_integer(name):
    legal = float(RANGES[name].default)
    (problem,) = problems_of(limit(name, legal))
    assert "float" in problem.message
    section = "  processes: {max_children: 1e1}" if name == "max_children" else f"  {name}: 1e1"
    (problem,) = problems_of(f"tool_id: T\ninputs: {{command: c}}\nsandbox:\n{section}\n")
    assert "10.0 is a float" in problem.message


def test_the_schema_and_the_table_of_limits_agree():
    sandbox = schema("execution-contract")["properties"]["sandbox"]["properties"]
    described = {**sandbox, **sandbox["processes"]["properties"]}
    for name, bounds in RANGES.items():
        part = described[name]
        assert (part["default"], part["minimum"], part["maximum"]) == (
            bounds.default,
            bounds.least,
            bounds.most,
        )


def test_the_schema_is_itself_valid_and_closed_everywhere():
    document = schema("execution-contract")
    meta.validate(document)

    def objects(part):
        if isinstance(part, dict):
            if part.get("type") == "object":
                yield part
            for item in part.values():
                yield from objects(item)
        elif isinstance(part, list):
            for item in part:
                yield from objects(item)

    assert [
        part for part in objects(document) if part.get("additionalProperties") is not False
    ] == []


@pytest.mark.req("000-1")
@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ({"inputs": {"command": "rg"}}, "tool_id"),
        ({"tool_id": "T"}, "inputs"),
        ({"tool_id": "T", "inputs": {}}, "inputs.command"),
        (asked(inputs__command=""), "inputs.command"),
        (asked(inputs=["rg"]), "inputs"),
        (asked(inputs__arguments="-n"), "inputs.arguments"),
        (asked(inputs__arguments=["-m", 5]), "inputs.arguments[1]"),
        (asked(inputs__environment=["A=1"]), "inputs.environment"),
        (asked(inputs__environment={"A": 1}), "inputs.environment.A"),
        (asked(sandbox=None), "sandbox"),
        (asked(sandbox__network__enabled="true"), "sandbox.network.enabled"),
        (asked(sandbox__filesystem__level="root"), "sandbox.filesystem.level"),
        (asked(sandbox__processes__allow_fork=1), "sandbox.processes.allow_fork"),
        (asked(outputs__stdout="kept"), "outputs.stdout"),
        (asked(outputs__exit_code=256), "outputs.exit_code"),
        (asked(outputs__exit_code=-1), "outputs.exit_code"),
        (asked(metadata__requested_by=""), "metadata.requested_by"),
        (asked(metadata__purpose=None), "metadata.purpose"),
        (asked(determinism="D4"), "determinism"),
        (asked(surprise=1), "surprise"),
        (asked(inputs__shell=True), "inputs.shell"),
        (asked(sandbox__network__ports=[1]), "sandbox.network.ports"),
        (
            asked(outputs__artifacts=[{"name": "a", "path": "b", "mode": 1}]),
            "outputs.artifacts[0].mode",
        ),
        (asked(metadata__cost=1), "metadata.cost"),
        ([], ""),
        ("just text", ""),
    ],
)
def test_a_contract_that_does_not_conform_is_refused_naming_the_field(broken, field):
    source = broken if isinstance(broken, dict) else json.dumps(broken)
    assert [problem.field for problem in problems_of(source)] == [field]


@pytest.mark.req("000-1")
def test_refusing_a_contract_creates_no_process_file_or_connection():
    watched = """
import sys
from actum.contract.parse import parse_contract
from actum.errors import ContractInvalid

def ask(text):
    try:
        parse_contract(text)
    except ContractInvalid:
        return
    raise SystemExit("accepted")

ask("inputs: {comand: 5}")  # first use loads libraries and the schema
seen = []
sys.addaudithook(lambda event, arguments: seen.append(event))
ask("tool_id: T\\ninputs: {command: rg}\\nsandbox: {timeout_ms: 999, shell: true}\\n")
ask("tool_id: [")
touching = ("open", "os.", "subprocess.", "socket.", "shutil.", "tempfile.", "pty.")
print([event for event in seen if event.startswith(touching)])
"""
    done = subprocess.run([sys.executable, "-c", watched], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    "field",
    [
        "inputs__command",
        "inputs__arguments",
        "inputs__environment",
        "inputs__working_directory",
        "inputs__input_files",
        "sandbox__filesystem__read",
        "sandbox__filesystem__write",
        "sandbox__filesystem__deny",
        "outputs__output_files",
        "outputs__artifacts",
    ],
)
def test_a_nul_byte_is_refused_wherever_the_kernel_would_cut_the_text(field):
    values = {"inputs__command": "r\0g", "inputs__working_directory": "/a\0b"}
    values |= {"inputs__environment": {"A": "x\0y"}}
    (problem,) = problems_of(asked(**{field: values.get(field, ["a\0b"])}))
    assert problem.field.startswith(field.replace("__", "."))
    assert "NUL" in problem.message


def test_a_nul_byte_is_refused_in_parameters_however_deep():
    (problem,) = problems_of(asked(inputs__parameters={"a": [{"b": "x\0"}], "c": "fine"}))
    assert problem.field == "inputs.parameters.a[0].b"


def test_stdin_may_hold_any_text():
    assert contract(inputs__stdin="a\0b").inputs.stdin == b"a\0b"


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "A\n", "Ä", "A\0"])
def test_a_bad_variable_name_is_a_clear_problem(name):
    (problem,) = problems_of(asked(inputs__environment={name: "x", "GOOD_1": "y"}))
    assert problem.field.startswith("inputs.environment")
    assert problem.value == json.dumps(name, ensure_ascii=False)
    assert "is not permitted" in problem.message
    assert "digits" in problem.permitted


@pytest.mark.parametrize("field", ["execution_id", "session", "tool_id", "adapter_id"])
def test_names_that_become_file_names_are_harmless(field):
    for name in ("a", "A.b_c-9", "0" * 128):
        assert parse_contract(asked(**{field: name})).document[field] == name
    for name in ("", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "0" * 129, "é"):
        (problem,) = problems_of(asked(**{field: name}))
        assert (problem.field, problem.value) == (
            field,
            json.dumps(name, ensure_ascii=False)[:80],
        ) or (len(name) > 80)


@pytest.mark.parametrize(
    "host",
    ["api.example.com", "api.example.com:443", "*.example.com", "10.0.0.1", "::1", "[::1]:80"],
)
def test_hosts_are_taken_in_the_forms_that_the_gate_understands(host):
    assert contract(sandbox__network__allow=[host]).sandbox.network.allow == (host,)


@pytest.mark.parametrize("host", ["", "https://a.b/", "a b", "*", "a.*", "a:b", "a:123456", "a/b"])
def test_a_host_in_any_other_form_is_refused(host):
    (problem,) = problems_of(asked(sandbox__network__deny=[host]))
    assert problem.field == "sandbox.network.deny[0]"


@pytest.mark.req("000-28")
@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "",
        "2026-13-01T00:00:00Z",
        "2026-01-16",
        "2026-01-16T09:30:00",
        "1768555800",
        "Z",
    ],
)
def test_a_timestamp_that_does_not_name_one_moment_is_refused(text):
    (problem,) = problems_of(asked(metadata__requested_at=text))
    assert problem.field == "metadata.requested_at"
    assert "UTC offset" in problem.permitted


@pytest.mark.req("000-28")
@pytest.mark.parametrize(
    "text",
    [
        "2026-01-16T09:30:00Z",
        "2026-01-16T10:30:00+01:00",
        "2026-01-16 09:30:00.000+00:00",
        "20260116T093000Z",
    ],
)
def test_iso_8601_timestamps_with_an_offset_are_read_as_the_same_moment(text):
    assert contract(metadata__requested_at=text).metadata.requested_at.timestamp() == 1768555800


@pytest.mark.parametrize("encoded", ["%%", "YQ", "YQ==YQ==", "é"])
def test_stdin_that_is_not_base64_is_refused(encoded):
    (problem,) = problems_of(asked(inputs__stdin={"base64": encoded}))
    assert (problem.field, problem.message) == ("inputs.stdin.base64", "is not base64.")


def test_all_problems_come_in_one_answer_with_line_and_column():
    text = """\
tool_id: TL-003
excution_id: x
inputs:
  comand: rg
  arguments: [-m, 5, "a\\0b"]
  environment: {1A: x, B: 3}
  stdin: {base64: "%%"}
sandbox:
  timeout_ms: 999
  memory_mb: 512.0
  processes: {max_children: "5", allow_fork: no}
  filesystem: {read: ["", 3]}
metadata: {requested_at: 2026-01-16T09:30:00}
"""
    found = problems_of(text, file="c.yaml")
    assert [(problem.line, problem.column, problem.field) for problem in found] == [
        (2, 1, "excution_id"),
        (4, 3, "inputs.comand"),
        (4, 3, "inputs.command"),
        (5, 19, "inputs.arguments[1]"),
        (5, 22, "inputs.arguments[2]"),
        (6, 17, 'inputs.environment["1A"]'),
        (6, 27, "inputs.environment.B"),
        (7, 19, "inputs.stdin.base64"),
        (9, 15, "sandbox.timeout_ms"),
        (10, 14, "sandbox.memory_mb"),
        (11, 29, "sandbox.processes.max_children"),
        (11, 46, "sandbox.processes.allow_fork"),
        (12, 23, "sandbox.filesystem.read[0]"),
        (12, 27, "sandbox.filesystem.read[1]"),
        (13, 26, "metadata.requested_at"),
    ]
    assert str(found[8]) == (
        "c.yaml:9:15: sandbox.timeout_ms: 999 is too small. (permitted: integer 1000..600000)"
    )


def test_country_codes_and_switches_stay_text_in_a_contract():
    text = "tool_id: NO\ninputs: {command: on, arguments: [no, 12:30:45], environment: {C: NO}}\n"
    document = parse_contract(text).document
    assert document["tool_id"] == "NO"
    assert document["inputs"] == {
        "command": "on",
        "arguments": ["no", "12:30:45"],
        "environment": {"C": "NO"},
    }


def test_the_same_contract_is_read_from_text_bytes_data_and_file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(FULL)
    from_text = parse_contract(FULL).document
    assert parse_contract(FULL.encode()).document == from_text
    assert parse_contract(from_text).document == from_text
    assert parse_contract(json.dumps(from_text)).document == from_text
    from_file = parse_contract(path)
    assert (from_file.document, from_file.file) == (from_text, str(path))


def test_a_file_that_cannot_be_read_is_a_problem_with_its_name(tmp_path):
    (problem,) = problems_of(tmp_path / "absent.yaml")
    assert problem.file.endswith("absent.yaml")
    assert "No such file" in problem.message


def test_a_file_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * 3_000_000)
    (problem,) = problems_of(path)
    assert problem.permitted == "at most 1048576 bytes"


def test_the_draft_keeps_paths_as_written_and_ignores_later_changes():
    source = asked(inputs__working_directory="../x/./y", inputs__input_files=["a/../b"])
    draft = parse_contract(source)
    source["inputs"]["command"] = "sh"
    assert draft.document["inputs"]["working_directory"] == "../x/./y"
    assert draft.document["inputs"]["input_files"] == ["a/../b"]
    assert draft.document["inputs"]["command"] == SMALLEST["inputs"]["command"]
