"""An access token serves until it expires, and is a secret as long as it lives."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import pytest

from actum import Outcome, Runtime

from .service import Project, Reply, Request, Service, said

pytestmark = pytest.mark.sandbox
Changed = Callable[..., Project]


def oauth(tool: dict[str, Any], adapter: dict[str, Any], **more: str) -> None:
    auth = {"token_url": "https://login.example.com/token", "client_id": "me", **more}
    adapter["interface"]["api"] |= {"auth_method": "oauth", "auth": auth}
    hosts = ["api.example.com", "login.example.com"]
    tool["scope"]["hosts"] = adapter["sandbox_override"]["network"]["allow"] = hosts


class Issuer:
    """Gives out numbered tokens, and takes all but those of `refused`."""

    def __init__(self, expires_in: object = 3_600) -> None:
        self.given = 0
        self.expires_in = expires_in
        self.refused: set[str] = set()

    def __call__(self, request: Request) -> Reply:
        if request.host == "login.example.com":
            self.given += 1
            token = f"access-token-number-{self.given}"
            return said({"access_token": token, "expires_in": self.expires_in})
        token = request.headers["authorization"].removeprefix("Bearer ")
        if token in self.refused:
            return said({"error": f"{token} is no good"}, 401)
        return said({"data": f"you sent {token}"})


def hosts(service: Service) -> list[str]:
    return [request.host.partition(".")[0] for request in service.seen]


def test_a_token_serves_the_next_calls_and_leaves_no_trace(
    changed: Changed, service: Service
) -> None:
    service.answer = Issuer()
    project = changed(oauth)
    results = [project.call("list_resources").check() for _ in range(3)]
    assert hosts(service) == ["login", "api", "api", "api"]
    assert {request.headers["authorization"] for request in service.seen[1:]} == {
        "Bearer access-token-number-1"
    }
    for result in results:
        assert result.output.startswith("you sent [redacted")
        assert "access-token" not in json.dumps(result.document())
        assert result.result is not None
        assert result.result.artifacts == ()
    settings = project.runtime.settings
    project.runtime.close()
    kept = b"".join(file.read_bytes() for file in settings.root.rglob("*") if file.is_file())
    assert b"list_resources" in kept, "there are records to look through"
    assert b"access-token-number" not in kept
    project.runtime = Runtime(settings)
    project.call("list_resources").check()
    assert hosts(service)[4:] == ["login", "api"], "it outlived its runtime"


_UNUSUAL = "a+token/of=the~very-first-call"


@pytest.mark.parametrize(
    "echo",
    [
        lambda token: json.dumps({"data": quote_plus(token)}).encode(),
        lambda token: json.dumps({"data": token}).replace("/", "\\/").encode(),
        lambda token: b"\xff\xfe" + token.encode(),
    ],
    ids=["as an address", "with escaped slashes", "among bytes"],
)
def test_a_token_is_hidden_from_the_first_call_on_however_it_is_echoed(
    changed: Changed, service: Service, echo: Callable[[str], bytes]
) -> None:
    def answer(request: Request) -> Reply:
        if request.host == "login.example.com":
            return said({"access_token": _UNUSUAL, "expires_in": 3_600})
        token = request.headers["authorization"].removeprefix("Bearer ")
        return 200, {"Content-Type": "application/json"}, echo(token)

    service.answer = answer
    result = changed(oauth).call("list_resources")
    assert result.result is not None
    told = json.loads(result.result.stdout)
    body = told["body"].encode()
    if told["encoding"] == "base64":
        body = base64.b64decode(body)
    assert b"[redacted]" in body
    assert b"first-call" not in body


def test_a_token_that_says_nothing_of_its_end_is_not_kept(
    changed: Changed, service: Service
) -> None:
    service.answer = Issuer(expires_in=None)
    project = changed(oauth)
    for _ in range(2):
        project.call("list_resources").check()
    assert hosts(service) == ["login", "api"] * 2


def test_a_token_that_was_taken_back_is_replaced_at_once(
    changed: Changed, service: Service
) -> None:
    service.answer = issuer = Issuer()
    project = changed(oauth)
    project.call("list_resources").check()
    issuer.refused.add("access-token-number-1")
    result = project.call("list_resources").check()
    assert hosts(service) == ["login", "api", "api", "login", "api"]
    assert "access-token" not in json.dumps(result.document())
    project.call("list_resources").check()
    assert hosts(service)[5:] == ["api"], "the new one is kept"


def test_who_is_not_let_in_with_a_new_token_either_is_told_so(
    changed: Changed, service: Service
) -> None:
    service.answer = issuer = Issuer()
    project = changed(oauth)
    issuer.refused = {f"access-token-number-{number}" for number in range(9)}
    result = project.call("list_resources")
    assert (result.outcome, result.history[0].code) == (Outcome.TOOL_ERROR, 401)
    assert hosts(service) == ["login", "api"], "once: a new token is not doubted"
    project.call("list_resources")
    assert hosts(service)[2:] == ["login", "api"], "and was not kept"


def test_another_secret_gets_another_token(
    changed: Changed, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.answer = Issuer()
    project = changed(oauth)
    project.call("list_resources").check()
    monkeypatch.setenv("TEST_REST_TOKEN", "another-secret-of-the-client")
    project.call("list_resources").check()
    assert hosts(service) == ["login", "api"] * 2


def test_a_tool_that_only_writes_such_a_file_has_it_collected(changed: Changed) -> None:
    """The name means nothing where no token was asked for."""
    project = changed(oauth)
    command = b'echo mine > "$ACTUM_ARTIFACTS/actum-access-token"'
    result = project.runtime.exec("shell", cwd=project.root, stdin=command).check()
    assert result.result is not None
    assert [item.name for item in result.result.artifacts] == ["actum-access-token"]
