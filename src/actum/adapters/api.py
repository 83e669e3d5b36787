"""API adapters: from a contract to one HTTP call, made by a driver inside the sandbox.

The driver (`drivers/http_call.py`) is a provided file; its request is JSON on stdin, its answer
one JSON document on stdout. Credentials are in neither: the request only names the variable that
holds the descriptor to read them from.

Parameters that the path names go there, percent-encoded; a GET, HEAD, DELETE or OPTIONS sends the
others as a query, any other method as a JSON object. This process sends nothing.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from actum.adapters.args_schema import check_parameters
from actum.contract.call import PROVIDED, TOKEN_FILE, Argument, Call, SecretUse, secrets_asked
from actum.contract.model import SCRATCH, Contract, Json
from actum.errors import Refused, Violation
from actum.policy.allowlist import split_endpoint
from actum.registry.model import Adapter, Entry, Tool

_DRIVER = "http_call.py"
_PROGRAM = "python3"
#: Of a response; the driver's whole answer must fit into the stored part of stdout.
MAX_BYTES = 1_000_000
_IN_QUERY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_SHOWN = 80
KEY_HEADER = "Idempotency-Key"


def build_call(contract: Contract, entry: Entry) -> Call:
    """The driver with its request; raises `Refused` with every problem at once."""
    inputs, interface = contract.inputs, entry.adapter.interface
    endpoint = interface["endpoint_mapping"].get(inputs.command)
    if endpoint is None:
        raise unknown_operation(inputs.command, interface["endpoint_mapping"], entry)
    violations = [
        *check_parameters(entry.tool.args_schema, inputs.parameters, ()),
        *_not_taken(contract),
    ]
    method, template = split_endpoint(endpoint)
    given = {name: value for name, value in inputs.parameters.items() if value is not None}
    key = entry.tool.operation(inputs.command).key
    headers = dict(interface.get("headers", {}))
    try:
        if key is not None and key in given:
            headers[KEY_HEADER] = _line(f"inputs.parameters.{key}", given.pop(key))
        path, rest = _path(template, given)
        query, body = _rest(method, rest, inputs.stdin)
    except _Unfit as error:
        violations.append(error.violation)
    if violations:
        raise Refused(
            "ARGS_INVALID",
            f"{len(violations)} problem(s) in the inputs of {entry.tool.name}: "
            + " ".join(violation.message for violation in violations),
            violations=tuple(dict.fromkeys(violations)),
        )
    if body is not None and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "application/json"
    auth, secrets = _auth(interface, entry.tool)
    order: dict[str, Json] = {
        "method": method,
        "url": interface["base_url"].rstrip("/") + path + query,
        "headers": {"User-Agent": "actum", "Accept-Encoding": "identity", **headers},
        "body": None if body is None else base64.b64encode(body).decode(),
        "auth": auth,
        "hosts": list(entry.adapter.override.network_allow or (_host(interface["base_url"]),)),
        "max_bytes": MAX_BYTES,
    }
    return Call(
        tool=entry.tool_ref,
        adapter=entry.adapter_ref,
        operation=inputs.command,
        program=_PROGRAM,
        arguments=tuple(
            Argument(value=value, field="interface.api", fixed=True)
            for value in ("-I", "-S", f"{PROVIDED}/{_DRIVER}")
        ),
        environment=inputs.environment,
        stdin=json.dumps(order, sort_keys=True).encode(),
        working_directory=SCRATCH,
        input_files=(),
        provided={_DRIVER: _driver()},
        secrets=(*secrets, *secrets_asked(inputs)),
    )


@cache
def _driver() -> bytes:
    return (Path(__file__).parent / "drivers" / _DRIVER).read_bytes()


def unknown_operation(asked: str, known: Mapping[str, Json], entry: Entry) -> Refused:
    """The adapter does not map this operation."""
    violation = Violation(
        code="IV-01",
        field="inputs.command",
        value=asked[:_SHOWN],
        message=f"The adapter {entry.adapter.adapter_id} has no operation {asked[:_SHOWN]!r}; "
        f"it has: {', '.join(sorted(known))}.",
    )
    return Refused("IV-01", violation.message, violations=(violation,))


class _Unfit(Exception):
    def __init__(self, field: str, message: str) -> None:
        # Never the value: it may belong to a third party.
        self.violation = Violation(code="ARGS_INVALID", field=field, value="", message=message)


def _not_taken(contract: Contract) -> Iterator[Violation]:
    for name, given in (
        ("arguments", contract.inputs.arguments),
        ("input_files", contract.inputs.input_files),
    ):
        if given:
            yield _Unfit(
                f"inputs.{name}",
                f"inputs.{name}: an api adapter takes parameters, or a body on stdin.",
            ).violation


def _path(template: str, given: Mapping[str, Json]) -> tuple[str, dict[str, Json]]:
    """The path, and the parameters that it did not use."""
    named = _PLACEHOLDER.findall(template)
    missing = [name for name in named if name not in given]
    if missing:
        field = f"inputs.parameters.{missing[0]}"
        raise _Unfit(field, f"The path {template} needs the parameter {missing[0]}.")
    values = {name: _segment(f"inputs.parameters.{name}", given[name]) for name in named}
    path = _PLACEHOLDER.sub(lambda found: values[found[1]], template)
    return path, {name: value for name, value in given.items() if name not in values}


def _segment(field: str, value: Json) -> str:
    """One path segment: encoded so that it cannot end the segment, and never a step up."""
    text = _scalar(field, value)
    if not text or any(part in (".", "..") for part in re.split(r"[/\\]", text)):
        raise _Unfit(field, f"{field} is empty, `.` or `..`, which cannot be part of a path.")
    return quote(text, safe="")


def _scalar(field: str, value: Json) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _Unfit(field, f"{field} holds a lone surrogate.") from error
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise _Unfit(field, f"{field} holds a control character.")
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise _Unfit(field, f"{field} must be a string, number or boolean to be part of a URL.")


def _line(field: str, value: Json) -> str:
    text = _scalar(field, value)
    if not text or not text.isascii() or len(text) > 255:
        raise _Unfit(field, f"{field} must be 1 to 255 plain characters to be a key.")
    return text


def _rest(method: str, rest: Mapping[str, Json], stdin: bytes | None) -> tuple[str, bytes | None]:
    """(query, body) of the parameters that the path did not use."""
    if method in _IN_QUERY:
        if stdin:
            raise _Unfit("inputs.stdin", f"inputs.stdin: a {method} has no body.")
        pairs = [
            (name, _scalar(f"inputs.parameters.{name}", item))
            for name, value in rest.items()
            for item in (value if isinstance(value, (list, tuple)) else (value,))
        ]
        return (f"?{urlencode(pairs)}" if pairs else ""), None
    if stdin and rest:
        names = ", ".join(rest)
        raise _Unfit("inputs.stdin", f"inputs.stdin: the body is already made of {names}.")
    return "", stdin or json.dumps(dict(rest), ensure_ascii=False).encode()


def _auth(
    interface: Mapping[str, Json], tool: Tool
) -> tuple[dict[str, Json], tuple[SecretUse, ...]]:
    """How the driver authenticates, and the secret that it needs."""
    kind, more = interface["auth_method"], interface.get("auth", {})
    if kind == "none":
        return {"kind": "none"}, ()
    allowed = tool.permissions.secrets
    name = more.get("secret") or (allowed[0] if len(allowed) == 1 else None)
    if name is None:
        listed = ", ".join(allowed) or "none"
        raise Refused(
            "AUTH_SECRET_UNNAMED",
            f"interface.api.auth_method is {kind}, but no secret is chosen: "
            f"{tool.tool_id} is approved for {listed}.",
            remedy="Name one in permissions.secrets.allowed of tool.yaml, or, of several, in "
            "interface.api.auth.secret of the adapter; then approve the tool again.",
        )
    use = SecretUse(name=name, variable=f"ACTUM_FD_{name}", by_descriptor=True)
    auth: dict[str, Json] = {"kind": kind, "descriptor": use.variable}
    if kind == "api_key":
        query = more.get("query")
        auth |= {"query": query, "header": None if query else more.get("header", "X-API-Key")}
    if kind == "oauth":
        auth |= {
            "token_url": more["token_url"],
            "client_id": more["client_id"],
            "scope": more.get("scope", ""),
            "keep_in": TOKEN_FILE,
        }
        held = SecretUse(
            name=name, variable=f"{use.variable}_TOKEN", by_descriptor=True, token=True
        )
        return {**auth, "held": held.variable}, (use, held)
    return auth, (use,)


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""


def repeatable(adapter: Adapter, operation: str) -> bool:
    """Whether repeating it has no further effect by the method's definition."""
    method, _ = split_endpoint(adapter.interface["endpoint_mapping"][operation])
    return method in ("GET", "HEAD", "OPTIONS")
