"""Where credentials go, where a call may be led, and what an answer may be."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from actum import Outcome
from actum.adapters.drivers import http_call

from .service import TOKEN, Project, Reply, Request, Service, said

pytestmark = pytest.mark.sandbox
Change = Callable[[dict[str, Any], dict[str, Any]], None]
Changed = Callable[..., Project]


def with_auth(method: str, **auth: str) -> Change:
    def change(tool: dict[str, Any], adapter: dict[str, Any]) -> None:
        adapter["interface"]["api"] |= {"auth_method": method, **({"auth": auth} if auth else {})}
        hosts = ["api.example.com", "login.example.com"]
        tool["scope"]["hosts"] = adapter["sandbox_override"]["network"]["allow"] = hosts

    return change


def leading_to(where: str, status: int = 302) -> Callable[[Request], Reply]:
    """The first path leads elsewhere; elsewhere says what it was sent."""

    def answer(request: Request) -> Reply:
        if request.path.startswith("/v1/resources"):
            return said({}, status, Location=where)
        return said({"data": {"host": request.host, "method": request.method}})

    return answer


def two_hosts(tool: dict[str, Any], adapter: dict[str, Any]) -> None:
    hosts = ["api.example.com", "other.example.com"]
    tool["scope"]["hosts"] = adapter["sandbox_override"]["network"]["allow"] = hosts


@pytest.mark.req("000-100")
def test_none_sends_nothing_and_needs_no_secret(changed: Changed, service: Service) -> None:
    service.answer = lambda _request: said({"data": 1})

    def change(tool: dict[str, Any], adapter: dict[str, Any]) -> None:
        with_auth("none")(tool, adapter)
        tool["permissions"]["secrets"]["allowed"] = []

    assert changed(change).call("list_resources").ok
    assert "authorization" not in service.seen[0].headers


@pytest.mark.req("000-100")
@pytest.mark.parametrize(
    ("auth", "header"), [({}, "x-api-key"), ({"header": "X-Custom"}, "x-custom")]
)
def test_a_key_goes_into_its_header(
    changed: Changed, service: Service, auth: dict[str, str], header: str
) -> None:
    service.answer = lambda request: said({"data": dict(request.headers)})
    result = changed(with_auth("api_key", **auth)).call("list_resources").check()
    assert service.seen[0].headers[header] == TOKEN
    assert result.output[header] == "[redacted]"


@pytest.mark.req("000-100")
def test_or_into_the_query(changed: Changed, service: Service) -> None:
    service.answer = lambda request: said({"data": request.path})
    project = changed(with_auth("api_key", query="key"))
    result = project.call("list_resources", parameters={"limit": 2}).check()
    assert parse_qs(urlsplit(service.seen[0].path).query) == {"limit": ["2"], "key": [TOKEN]}
    assert TOKEN not in json.dumps(result.document())


@pytest.mark.req("000-100")
def test_oauth_gets_a_token_for_its_credentials(changed: Changed, service: Service) -> None:
    def answer(request: Request) -> Reply:
        if request.host == "login.example.com":
            return said({"access_token": "short-lived-token", "token_type": "bearer"})
        return said({"data": request.headers["authorization"]})

    service.answer = answer
    url = "https://login.example.com/token"
    change = with_auth("oauth", token_url=url, client_id="me & you", scope="read write")
    result = changed(change).call("list_resources").check()
    asked, called = service.seen
    assert (asked.method, asked.path) == ("POST", "/token")
    basic = base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
    assert basic == f"me+%26+you:{TOKEN}"
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["read write"],
    }
    assert called.headers["authorization"] == "Bearer short-lived-token"
    assert result.output == "Bearer [redacted]"


def test_oauth_that_is_refused_is_the_ending(changed: Changed, service: Service) -> None:
    service.answer = lambda _request: said({"error": "invalid_client"}, 401)
    url = "https://login.example.com/token"
    result = changed(with_auth("oauth", token_url=url, client_id="me")).call("list_resources")
    assert (result.outcome, result.history[0].code) == (Outcome.TOOL_ERROR, 401)
    assert [request.host for request in service.seen] == ["login.example.com"]


def test_a_secret_that_is_not_named_is_refused(changed: Changed, service: Service) -> None:
    def change(tool: dict[str, Any], _adapter: dict[str, Any]) -> None:
        tool["permissions"]["secrets"]["allowed"] = ["REST_TOKEN", "ANOTHER"]

    result = changed(change).ask("list_resources")
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("AUTH_SECRET_UNNAMED",))
    assert service.seen == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_at_home_is_followed_with_credentials(
    project: Project, service: Service, status: int
) -> None:
    service.answer = leading_to("/v2/moved?x=1", status)
    result = project.call("get_resource", parameters={"id": 1}).check()
    assert result.output == {"host": "api.example.com", "method": "GET"}
    assert [request.headers.get("authorization") for request in service.seen] == [
        f"Bearer {TOKEN}"
    ] * 2


def test_credentials_do_not_go_to_another_host(changed: Changed, service: Service) -> None:
    service.answer = leading_to("https://other.example.com/x")
    result = changed(two_hosts).call("get_resource", parameters={"id": 1}).check()
    assert result.output["host"] == "other.example.com"
    assert "authorization" in service.seen[0].headers
    assert "authorization" not in service.seen[1].headers


@pytest.mark.req("000-122", "000-146")
@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("https://other.example.com/x", "not among the allowed hosts"),
        ("https://127.0.0.1/x", "not among the allowed hosts"),
        ("http://api.example.com/x", "from https to http"),
        ("file:///etc/passwd", "other than an http"),
        ("https://user@api.example.com/", "other than an http"),
        ("https://api.example.com:no/", "invalid URL"),
        ("/v1/resources/1", "more than 5 redirects"),
    ],
)
def test_a_redirect_elsewhere_is_not_followed(
    project: Project, service: Service, where: str, says: str
) -> None:
    service.answer = leading_to(where)
    result = project.call("get_resource", parameters={"id": 1})
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.result is not None
    assert result.result.exit_code == 3
    assert says in (result.result.error_reason or "")
    assert {request.host for request in service.seen} == {"api.example.com"}


@pytest.mark.req("000-121", "000-122")
def test_what_the_scope_does_not_cover_no_override_opens(
    changed: Changed, service: Service
) -> None:
    """The adapter allows a second host, the approved scope does not: the door is not there."""

    def change(_tool: dict[str, Any], adapter: dict[str, Any]) -> None:
        allow = ["api.example.com", "other.example.com"]
        adapter["sandbox_override"]["network"]["allow"] = allow

    service.answer = leading_to("https://other.example.com/x")
    result = changed(change).call("get_resource", parameters={"id": 1})
    assert result.outcome is Outcome.TOOL_ERROR
    assert {request.host for request in service.seen} == {"api.example.com"}
    assert [(c.host, bool(c.refused)) for c in result.egress if c.refused][:1] == [
        ("other.example.com", True)
    ]


def test_a_post_is_not_led_elsewhere_by_guessing(project: Project, service: Service) -> None:
    service.answer = leading_to("/v2/moved", 302)
    result = project.call("create_resource", parameters={"name": "x"})
    assert (result.outcome, result.history[0].code) == (Outcome.TOOL_ERROR, 302)
    service.answer = leading_to("/v2/moved", 307)
    assert project.call("create_resource", parameters={"name": "x"}).output["method"] == "POST"
    assert service.seen[-1].body == b'{"name": "x"}'
    service.answer = leading_to("/v2/moved", 303)
    assert project.call("create_resource", parameters={"name": "y"}).output["method"] == "GET"


@pytest.mark.parametrize("size", [1_000_001, 5_000_000])
def test_an_answer_that_is_too_large_is_not_had(
    project: Project, service: Service, size: int
) -> None:
    body = b'{"data":"' + b"x" * (size - 11) + b'"}'
    service.answer = lambda _request: (200, {"Content-Type": "application/json"}, body)
    result = project.call("get_resource", parameters={"id": 1})
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.result is not None
    assert "exceeds 1000000 bytes" in (result.result.error_reason or "")
    just = b'{"data":"' + b"x" * (1_000_000 - 11) + b'"}'
    service.answer = lambda _request: (200, {"Content-Type": "application/json"}, just)
    assert len(project.call("get_resource", parameters={"id": 2}).check().output) == 999_989


def test_an_answer_cut_short_is_a_failure_of_the_transport(
    project: Project, service: Service
) -> None:
    service.answer = lambda _request: (200, {"Content-Length": "100"}, b'{"data": 1}')
    result = project.call("get_resource", parameters={"id": 1})
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.history[0].transport_failure


@pytest.mark.parametrize(
    ("kind", "body", "output"),
    [
        ("text/plain", b"plain \xc3\xa9", "plain é"),
        ("application/problem+json; charset=utf-8", b'{"a":1}', {"a": 1}),
        ("image/png", b"\x89PNG\xff", {"encoding": "base64", "body": "iVBOR/8="}),
        ("application/json", b"", None),
    ],
)
def test_a_body_becomes_what_its_type_says(
    changed: Changed, service: Service, kind: str, body: bytes, output: Any
) -> None:
    def change(_tool: dict[str, Any], adapter: dict[str, Any]) -> None:
        adapter["transforms"]["output"] = []

    service.answer = lambda _request: (200, {"Content-Type": kind}, body)
    assert changed(change).call("list_resources").check().output == output


def test_a_body_of_another_form_comes_from_stdin(changed: Changed, service: Service) -> None:
    def change(_tool: dict[str, Any], adapter: dict[str, Any]) -> None:
        adapter["interface"]["api"]["headers"] = {"Content-Type": "text/csv"}
        adapter["transforms"]["output"] = [{"type": "parse", "spec": "csv"}]

    service.answer = lambda request: (200, {"Content-Type": "text/csv"}, request.body)
    result = changed(change).call("create_resource", stdin=b"a,b\n1,2\n").check()
    assert result.output == [{"a": "1", "b": "2"}]
    assert service.seen[0].headers["content-type"] == "text/csv"


def test_authorities_that_are_filed_one_by_one_are_found(
    trust: Any, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How the driver trusts where the project has no authorities of its own."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setattr(http_call, "_AUTHORITIES", str(tmp_path))
    ca_file, _ = trust
    asked = ["openssl", "x509", "-noout", "-subject_hash", "-in", str(ca_file)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    shutil.copyfile(ca_file, tmp_path / f"{done.stdout.strip()}.0")

    def greeted(name: str) -> str:
        with (
            socket.create_connection(("127.0.0.1", service.server_port)) as plain,
            http_call._verifying().wrap_socket(plain, server_hostname=name) as made,
        ):
            return made.version() or ""

    assert greeted("api.example.com").startswith("TLS")
    with pytest.raises(ssl.SSLCertVerificationError):
        greeted("not.example.com")
    (other,) = tmp_path.glob("*.0")
    other.rename(tmp_path / "00000000.0")
    with pytest.raises(ssl.SSLCertVerificationError):
        greeted("api.example.com")
