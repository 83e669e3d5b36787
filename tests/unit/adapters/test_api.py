"""What an api adapter makes of a contract, and what it may say about itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from policy.factories import make_contract

from actum.adapters import api
from actum.adapters.kinds import build_call, may_repeat, report_of
from actum.capture.model import DeadlinePassed, Exited
from actum.contract.model import SCRATCH
from actum.errors import ContractInvalid, Refused
from actum.policy.allowlist import permitting_operation
from actum.registry.load import load_adapters, load_tool
from actum.registry.model import Entry, Pin, ToolStatus
from actum.testing.fakes import captured
from actum.value import replace

EXAMPLE = Path(__file__).parents[3] / "examples/api/rest"


def entry(**interface: Any) -> Entry:
    tool, (adapter,) = load_tool(EXAMPLE), load_adapters(EXAMPLE)
    pin = Pin(
        tool_id="TL-100",
        name="rest",
        version="1.0.0",
        digest="0" * 64,
        status=ToolStatus.ACTIVE,
        approver="a",
        date="2026-11-15",
        evidence="e",
        adapters={},
    )
    adapter = replace(adapter, interface={**adapter.interface, **interface})
    return Entry(tool=tool, adapter=adapter, pin=pin)


REST = entry()


def order(operation: str, given_entry: Entry = REST, **inputs: Any) -> dict[str, Any]:
    call = build_call(make_contract(command=operation, **inputs), given_entry)
    found: dict[str, Any] = json.loads(call.stdin)
    return found


def test_the_call_is_the_driver_with_its_order_and_no_value_of_a_secret() -> None:
    call = build_call(make_contract(command="get_resource", parameters={"id": 7}), REST)
    assert call.argv == ("python3", "-I", "-S", "/run/actum/http_call.py")
    assert list(call.provided) == ["http_call.py"]
    assert (call.working_directory, call.operation) == (SCRATCH, "get_resource")
    assert [(use.name, use.by_descriptor) for use in call.secrets] == [("REST_TOKEN", True)]
    sent = json.loads(call.stdin)
    assert sent["url"] == "https://api.example.com/v1/resources/7"
    assert sent["auth"] == {"kind": "bearer", "descriptor": "ACTUM_FD_REST_TOKEN"}
    assert sent["hosts"] == ["api.example.com"]


@given(value=st.text(max_size=40))
def test_a_value_never_leaves_its_segment(value: str) -> None:
    try:
        url = order("get_resource", parameters={"id": value})["url"]
    except Refused as refused:
        assert {v.field for v in refused.violations} == {"inputs.parameters.id"}
        return
    parts = urlsplit(url)
    assert (parts.netloc, parts.query, parts.fragment) == ("api.example.com", "", "")
    *front, last = parts.path.split("/")
    assert (front, unquote(last)) == (["", "v1", "resources"], value)
    assert last not in (".", "..")


def test_the_rest_becomes_query_or_body() -> None:
    listed = order("list_resources", parameters={"limit": 5})
    assert (listed["url"], listed["body"]) == ("https://api.example.com/v1/resources?limit=5", None)
    made = order("create_resource", parameters={"name": "x", "request_key": "k"})
    assert made["headers"]["Idempotency-Key"] == "k"
    with pytest.raises(Refused) as refused:
        order("create_resource", parameters={"name": "x"}, stdin=b"raw")
    assert refused.value.violations[0].field == "inputs.stdin"
    with pytest.raises(Refused) as refused:
        order("list_resources", arguments=("--all",), input_files=("a",), stdin=b"x")
    fields = {violation.field for violation in refused.value.violations}
    assert fields == {"inputs.arguments", "inputs.input_files", "inputs.stdin"}


@pytest.mark.parametrize("key", ["", "é", "x" * 256, "a\nb"])
def test_a_key_is_one_plain_line(key: str) -> None:
    with pytest.raises(Refused):
        order("create_resource", parameters={"request_key": key})


@pytest.mark.parametrize(
    ("operation", "parameters", "may"),
    [
        ("get_resource", {}, True),
        ("create_resource", {}, False),
        ("create_resource", {"request_key": "k"}, True),
    ],
)
def test_what_may_be_done_twice(operation: str, parameters: dict[str, Any], may: bool) -> None:
    contract = make_contract(command=operation, parameters=parameters)
    assert may_repeat(contract, REST, operation) is may


@pytest.mark.parametrize(
    ("endpoints", "permitted"),
    [
        (["https://api.example.com/v1"], True),
        (["GET https://api.example.com/v1/resources"], True),
        (["GET https://api.example.com/v1/resources/{id}"], True),
        (["https://api.example.com/v1/resources/"], True),
        ([], False),
        (["POST https://api.example.com/v1/resources"], False),
        (["https://api.example.com/v1/res"], False),
        (["https://api.example.com/v2"], False),
        (["http://api.example.com/v1"], False),
        (["https://api.example.com.evil.test/v1"], False),
    ],
)
def test_an_endpoint_is_permitted_by_its_url_and_what_lies_above(
    endpoints: list[str], permitted: bool
) -> None:
    scope = replace(REST.tool.scope, endpoints=tuple(endpoints))
    asked = replace(REST, tool=replace(REST.tool, scope=scope))
    assert (permitting_operation(asked, "get_resource") is not None) is permitted


def answered(ending: Any = None, **answer: Any) -> Any:
    return captured(json.dumps(answer).encode(), ending=ending or Exited(1))


def test_what_an_answer_tells() -> None:
    told = report_of(REST.adapter, answered(status=503, retry_after_s=7))
    assert (told.code, told.retry_after_s, told.reason) == (
        503,
        7.0,
        "HTTP 503 Service Unavailable",
    )
    broken = {"kind": "transport", "message": "gone", "sent": False}
    told = report_of(REST.adapter, answered(status=None, error=broken))
    assert (told.code, told.transport_failure, told.untouched) == (None, True, True)
    told = report_of(REST.adapter, answered(status=None, error={**broken, "sent": True}))
    assert (told.transport_failure, told.untouched) == (True, False)


@pytest.mark.parametrize(
    "capture",
    [
        captured(b"", ending=Exited(1)),
        captured(b"not json", ending=Exited(1)),
        captured(b"[1]", ending=Exited(1)),
        captured(b'{"status": "503"}', ending=Exited(1)),
        captured(b'{"status": 503}', ending=DeadlinePassed(9)),
    ],
)
def test_an_answer_that_is_none_tells_nothing(capture: Any) -> None:
    told = report_of(REST.adapter, capture)
    assert (told.code, told.transport_failure) == (None, False)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"base_url": "https://user:word@api.example.com"}, "base_url"),
    ({"base_url": "https://api.example.com?x=1"}, "base_url"),
    ({"base_url": "https://api.example.com/#x"}, "base_url"),
    ({"base_url": "https://api.example.com:99999"}, "base_url"),
    ({"base_url": "http://api.example.com"}, "base_url"),
    ({"endpoint_mapping": {"up": "GET /a/../b"}}, "endpoint_mapping.up"),
    ({"endpoint_mapping": {"odd": "GET /a?b={c}"}}, "endpoint_mapping.odd"),
    ({"endpoint_mapping": {"odd": "GET /a/{b!r}"}}, "endpoint_mapping.odd"),
    ({"headers": {"Authorization": "x"}}, "headers.Authorization"),
    ({"headers": {"HOST": "x"}}, "headers.HOST"),
    ({"auth": {"header": "X"}}, "auth.header"),
    ({"auth_method": "oauth"}, "auth_method"),
    ({"auth_method": "api_key", "auth": {"header": "A", "query": "b"}}, "auth"),
]


@pytest.mark.parametrize(("interface", "field"), BAD)
def test_an_interface_that_cannot_be_meant_is_refused_when_it_is_loaded(
    tmp_path: Path, interface: dict[str, Any], field: str
) -> None:
    folder = tmp_path / "rest"
    (folder / "adapters").mkdir(parents=True)
    (folder / "tool.yaml").write_bytes((EXAMPLE / "tool.yaml").read_bytes())
    adapter = yaml.safe_load((EXAMPLE / "adapters/rest-api-client.yaml").read_text())
    file = folder / "adapters/adapter.yaml"
    file.write_text(yaml.safe_dump(adapter))
    assert load_adapters(folder)
    adapter["interface"]["api"] |= interface
    file.write_text(yaml.safe_dump(adapter))
    with pytest.raises(ContractInvalid) as invalid:
        load_adapters(folder)
    assert [problem.field for problem in invalid.value.problems] == [f"interface.api.{field}"]


def test_the_driver_is_plain_and_stands_alone() -> None:
    """It is run by whatever python3 there is, without any package, ours included."""
    import ast
    import sys

    tree = ast.parse(api._driver())
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {
        str(node.module).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert names <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("operations", "field"),
    [
        ({"get_resource": {"idempotent": True}}, None),
        ({"create_resource": {"key": "request_key"}}, None),
        ({"creat_resource": {"idempotent": True}}, "operations.creat_resource"),
        ({"create_resource": {"key": "other"}}, "operations.create_resource.key"),
        ({"create_resource": {"twice": True}}, "operations.create_resource.twice"),
    ],
)
def test_what_is_declared_of_operations_is_about_some(
    tmp_path: Path, operations: dict[str, Any], field: str | None
) -> None:
    folder = tmp_path / "rest"
    shutil.copytree(EXAMPLE, folder)
    tool = yaml.safe_load((folder / "tool.yaml").read_text())
    tool["scope"]["network"] = "on"
    tool["operations"] = operations
    (folder / "tool.yaml").write_text(yaml.safe_dump(tool))
    if field is None:
        assert load_tool(folder).operations
        return
    with pytest.raises(ContractInvalid) as invalid:
        load_tool(folder)
    assert [problem.field for problem in invalid.value.problems] == [field]
