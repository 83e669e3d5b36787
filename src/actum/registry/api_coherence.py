"""Checks beyond the schema for the interface of an api adapter: addresses, paths, credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from actum.contract.model import Json
from actum.documents.document import Document
from actum.documents.source_position import Path as KeyPath
from actum.errors import Problem

_API: KeyPath = ("interface", "api")
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_.-]*\}")
#: Characters of a path as written (RFC 3986), without placeholders.
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")
_OWN = {
    "none": frozenset[str](),
    "bearer": frozenset({"secret"}),
    "api_key": frozenset({"secret", "header", "query"}),
    "oauth": frozenset({"secret", "token_url", "client_id", "scope"}),
}
#: Headers set by the driver or by auth_method.
_TAKEN = frozenset(
    {
        *("authorization", "proxy-authorization", "connection"),
        *("host", "content-length", "transfer-encoding"),
    }
)


def api_problems(document: Document) -> Iterator[Problem]:
    api: Mapping[str, Json] = document.value["interface"]["api"]
    yield from _base_url(document, api["base_url"], api["auth_method"])
    yield from _auth(document, api)
    for name in api.get("headers", {}):
        if name.lower() in _TAKEN:
            yield document.problem(
                (*_API, "headers", name), "this header is set by auth_method or by the call."
            )
    for operation, endpoint in api["endpoint_mapping"].items():
        path = _PLACEHOLDER.sub("x", endpoint.rpartition(" ")[2])
        if not _PATH.fullmatch(path) or any(step in (".", "..") for step in path.split("/")):
            yield document.problem(
                (*_API, "endpoint_mapping", operation),
                "the path has invalid characters; other parameters go to the query or the body.",
                value=endpoint,
                permitted="segments, and placeholders such as {id}",
            )


def _base_url(document: Document, text: str, method: str) -> Iterator[Problem]:
    key_path = (*_API, "base_url")
    try:
        parts = urlsplit(text)
        fit = parts.port is None or parts.port > 0
    except ValueError:
        fit = False
    plain = fit and parts.hostname and not (parts.query or parts.fragment or "@" in parts.netloc)
    if not plain or not text.isascii() or not text.isprintable() or " " in text:
        yield document.problem(
            key_path, "write scheme, host, port and path, and nothing else.", value=text
        )
    elif parts.scheme == "http" and method != "none":
        yield document.problem(
            key_path, "credentials would go over plain http: write https, or auth_method none."
        )


def _auth(document: Document, api: Mapping[str, Json]) -> Iterator[Problem]:
    method, auth = api["auth_method"], api.get("auth", {})
    for name in auth:
        if name not in _OWN[method]:
            yield document.problem(
                (*_API, "auth", name),
                f"auth_method {method} has no such setting.",
                permitted=", ".join(sorted(_OWN[method])) or "none",
            )
    if "header" in auth and "query" in auth:
        yield document.problem((*_API, "auth"), "a key goes into a header or into the query.")
    missing = [name for name in ("token_url", "client_id") if name not in auth]
    if method == "oauth" and missing:
        yield document.problem(
            (*_API, "auth_method"), f"oauth needs auth.{' and auth.'.join(missing)}."
        )
