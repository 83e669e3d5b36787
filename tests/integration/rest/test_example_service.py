"""ADP-002 as the seed writes it, against a service that has its name."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome

from .service import TOKEN, Project, Service, said

pytestmark = pytest.mark.sandbox


@pytest.mark.req("000-99", "000-102", "000-139", "000-140", "000-144")
def test_get_resource(project: Project, service: Service) -> None:
    result = project.call("get_resource", parameters={"id": 7}).check()
    assert result.output == {"id": "7"}
    (request,) = service.seen
    assert (request.method, request.path, request.host) == (
        "GET",
        "/v1/resources/7",
        "api.example.com",
    )
    assert [(c.host, c.port, c.refused) for c in result.egress] == [("api.example.com", 443, "")]
    assert (result.attempts, [a.code for a in result.history]) == (1, [200])


@pytest.mark.req("000-102", "000-140")
def test_list_resources_and_create_resource(project: Project, service: Service) -> None:
    project.call("list_resources", parameters={"limit": 3, "name": "a&b=c/é"}).check()
    made = project.call("create_resource", parameters={"name": "new \N{SNOWMAN}"}).check()
    assert made.output == {"id": 8, "name": "new \N{SNOWMAN}"}
    listed, created = service.seen
    assert (listed.method, listed.path) == (
        "GET",
        "/v1/resources?limit=3&name=a%26b%3Dc%2F%C3%A9",
    )
    assert (created.method, created.path) == ("POST", "/v1/resources")
    assert json.loads(created.body) == {"name": "new \N{SNOWMAN}"}


@pytest.mark.req("000-101", "000-142")
def test_the_headers_of_the_adapter_are_sent_with_every_call(
    project: Project, service: Service
) -> None:
    project.call("list_resources").check()
    project.call("create_resource", parameters={"name": "x"}).check()
    for request in service.seen:
        assert request.headers["content-type"] == "application/json"
        assert request.headers["accept"] == "application/json"


@pytest.mark.req("000-100", "000-141")
def test_the_token_is_sent_and_nowhere_to_be_found(project: Project, service: Service) -> None:
    def echoing(request: object) -> object:
        return said({"data": {"you sent": vars(request)["headers"]["authorization"]}})

    service.answer = echoing  # type: ignore[assignment]
    result = project.call("get_resource", parameters={"id": 1}).check()
    assert service.seen[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in json.dumps(result.document())
    assert result.output == {"you sent": "Bearer [redacted]"}
    home = project.root / ".actum"
    with sqlite3.connect(home / "actum.db") as database:
        assert TOKEN not in "\n".join(database.iterdump())
    database.close()
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


@pytest.mark.req("000-143")
@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"id": 1, "limit": 1_000}, "inputs.parameters.limit"),
        ({"id": [1]}, "inputs.parameters.id"),
        ({"id": 1, "other": 2}, "inputs.parameters"),
        ({}, "inputs.parameters.id"),
        ({"id": "../admin"}, "inputs.parameters.id"),
        ({"id": ".."}, "inputs.parameters.id"),
        ({"id": "a\\..\\b"}, "inputs.parameters.id"),
        ({"id": ""}, "inputs.parameters.id"),
        ({"id": "a\r\nX: y"}, "inputs.parameters.id"),
    ],
)
def test_what_does_not_fit_the_schema_or_the_path_is_refused(
    project: Project, service: Service, parameters: dict[str, object], field: str
) -> None:
    result = project.call("get_resource", parameters=parameters)
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("ARGS_INVALID",))
    assert field in {violation.field for violation in result.violations}
    assert service.seen == []


def test_whatever_fits_stays_inside_its_segment(project: Project, service: Service) -> None:
    project.call("get_resource", parameters={"id": "a/b?c#d %2e é"}).check()
    assert service.seen[0].path == "/v1/resources/a%2Fb%3Fc%23d%20%252e%20%C3%A9"


@pytest.mark.req("000-138")
def test_an_experimental_adapter_is_used_only_by_name(project: Project, service: Service) -> None:
    result = project.ask("get_resource", parameters={"id": 1}, adapter_id=None)
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("ADAPTER_AMBIGUOUS",))
    assert service.seen == []
    assert project.call("get_resource", parameters={"id": 1}).ok


def test_an_operation_that_is_not_mapped_is_refused(project: Project, service: Service) -> None:
    result = project.ask("delete_resource", parameters={"id": 1})
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("IV_01",))
    assert "get_resource" in result.violations[0].message
    assert service.seen == []


@pytest.mark.req("000-102")
def test_a_template_without_a_method_is_a_get(
    changed: Callable[..., Project], service: Service
) -> None:
    def without_method(_tool: dict[str, Any], adapter: dict[str, Any]) -> None:
        adapter["interface"]["api"]["endpoint_mapping"]["list_resources"] = "/resources"

    changed(without_method).call("list_resources", parameters={"limit": 3}).check()
    (request,) = service.seen
    assert (request.method, request.path) == ("GET", "/v1/resources?limit=3")


@pytest.mark.req("000-146")
def test_a_call_is_within_thirty_seconds_and_one_host(project: Project) -> None:
    result = project.call("get_resource", parameters={"id": 1}).check()
    rows = {row.limit: row for row in result.enforcement}
    assert (rows["timeout_ms"].requested, rows["timeout_ms"].enforced) == ("30000", True)
    receipt = project.runtime.services.receipts.find(result.receipt_id)
    signed = json.loads(base64.b64decode(receipt.envelope["payload"]))["predicate"]
    granted = signed["policy"]["document"]
    assert granted["limits"]["timeout_ms"] == 30_000
    assert granted["network"]["allow"] == ["api.example.com"]


@pytest.mark.parametrize("status", [400, 401, 404, 418, 301])
def test_a_status_that_is_no_success_is_an_ending_with_its_code(
    project: Project, service: Service, status: int
) -> None:
    service.answer = lambda _request: said({"data": None, "error": "no"}, status)
    result = project.call("get_resource", parameters={"id": 1})
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.result is not None
    assert (result.result.exit_code, result.history[0].code) == (1, status)
    assert f"HTTP {status}" in (result.result.error_reason or "")
    assert json.loads(json.loads(result.result.stdout)["body"])["error"] == "no"
    assert (result.output, len(service.seen)) == (None, 1)


@pytest.mark.req("000-113")
def test_an_answer_without_data_is_an_invalid_output_that_is_kept(
    project: Project, service: Service
) -> None:
    service.answer = lambda _request: said({"other": 1})
    result = project.call("get_resource", parameters={"id": 1})
    assert result.outcome is Outcome.OUTPUT_INVALID
    assert result.result is not None
    assert json.loads(json.loads(result.result.stdout)["body"]) == {"other": 1}
    service.answer = lambda _request: (200, {"Content-Type": "application/json"}, b"{oops")
    assert project.call("get_resource", parameters={"id": 2}).outcome is Outcome.OUTPUT_INVALID


def test_the_example_is_the_seeds_adapter_to_the_byte() -> None:
    here = Path(__file__).parents[3]
    example = here / "examples/api/rest/adapters/rest-api-client.yaml"
    assert example.read_bytes() == (here / "tests/unit/registry/data/ADP-002.yaml").read_bytes()
