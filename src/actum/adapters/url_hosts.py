"""The hosts that a call names in its URLs.

A parameter that the tool's args_schema marks `x-actum: url` is an address on the network. A
contract that says nothing about the network requests exactly the hosts of these URLs; one that
names a level or hosts keeps its own. This grants nothing: the tool's scope and the approvals decide
as about any requested host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from actum.adapters.args_schema import RAW, marks_of
from actum.contract.model import Contract, Json, NetworkRequest
from actum.registry.model import Entry
from actum.value import replace

_PORTS = {"http": 80, "https": 443}
#: One host as `sandbox.network.allow` has it, without patterns. Other text could read as a pattern,
#: or as a host with its address (`policy.network.endpoint_in`), to an approval.
_ONE_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?|[0-9a-f:.]*:[0-9a-f:.]*")


def with_url_hosts(contract: Contract, entry: Entry) -> Contract:
    """`contract`, which requests the hosts of its URLs if it requests no network itself."""
    asked = contract.sandbox.network
    if asked.level is not None or asked.enabled is not None or asked.allow is not None:
        return contract
    hosts = tuple(dict.fromkeys(_hosts(contract, entry)))
    if not hosts:
        return contract
    network = NetworkRequest(enabled=True, allow=hosts, deny=asked.deny)
    return replace(contract, sandbox=replace(contract.sandbox, network=network))


def _hosts(contract: Contract, entry: Entry) -> Iterator[str]:
    schema, inputs = entry.tool.args_schema, contract.inputs
    if not schema.get("properties"):
        return
    given: dict[str, Json] = {**inputs.parameters, RAW: list(inputs.arguments)}
    for name, content in given.items():
        if marks_of(schema, name).url:
            for text in content if isinstance(content, (list, tuple)) else [content]:
                if isinstance(text, str) and (host := _host(text)):
                    yield host


def _host(url: str) -> str:
    """`host:port`; empty for a text that is no URL of HTTP, or that names no single host."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return ""
    if not host or parts.scheme not in _PORTS or not _ONE_HOST.fullmatch(host):
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
