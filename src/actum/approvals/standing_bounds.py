"""The hosts and paths that a standing approval may name.

Refused: what the scope of the tool does not have, because an approval never widens it; what no call
needs an approval for; and a path that a tool may have led elsewhere by a link.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from actum.approvals.decider import unfit
from actum.contract.contract_json import schema
from actum.contract.egress import internal_network, is_odd_spelling, literal, split_address
from actum.contract.levels import ANY_HOST, is_within, split_port
from actum.errors import Refused
from actum.policy.network import common_hosts, reaches
from actum.policy.paths import common, is_covered
from actum.policy.policy_settings import PolicySettings
from actum.registry.lock import Lock
from actum.registry.model import Pin
from actum.registry.path_snapshot import PathSnapshot

_NEVER_WIDER = (
    "A standing approval never widens the scope of a tool: add the {} to tool.yaml and have the"
    " tool approved again."
)


def permitted_host(host: str, pin: Pin, policy: PolicySettings) -> str:
    """One entry of `sandbox.network.allow`, as it is stored."""
    name, port = split_port(host)
    if not _host_pattern().search(host) or is_odd_spelling(name):
        raise unfit("--host", host, "a host, host:port, *.suffix or an address")
    if port and not 0 < int(port) < 65_536:
        raise unfit("--host", host, "a host with a port from 1 to 65535")
    scope = tuple(pin.grants.get("hosts", ()))
    if not pin.grants.get("network") or not common_hosts((host,), scope):
        raise Refused(
            "SCOPE_EXCEEDED",
            f"--host: {host} is not among the hosts approved for {pin.name}"
            f" ({', '.join(scope) or 'none'}).",
            remedy=_NEVER_WIDER.format("host"),
        )
    # A host that only `*` covers needs an approval by name, as in `policy.network`.
    by_name = reaches((each for each in scope if split_port(each)[0] != ANY_HOST), host)
    tcp = "tcp" in pin.grants.get("outbound", ())
    if by_name and not tcp and not _may_be_internal(name, port, policy):
        raise Refused(
            "NOTHING_TO_DECIDE",
            f"--host: {host} needs no approval beyond that of {pin.name}, which covers the public"
            " hosts that its scope names.",
            remedy="Call the tool.",
        )
    return host.lower()


@cache
def _host_pattern() -> re.Pattern[str]:
    """The syntax of `sandbox.network.allow`."""
    return re.compile(schema("execution-contract")["$defs"]["host"]["pattern"])


def _may_be_internal(name: str, port: str, policy: PolicySettings) -> bool:
    if name.startswith("*.") or name == "localhost" or name.endswith(".localhost"):
        return True
    addresses = [literal(name)]
    for endpoint, mapped in policy.resolve.items():
        known, known_port = split_port(endpoint)
        if known == name and port in ("", known_port):
            addresses.append(split_address(mapped)[0])
    return any(each is not None and internal_network(each) for each in addresses)


def permitted_path(path: str, pin: Pin, policy: PolicySettings, lock: Lock) -> str:
    """The resolved path, with everything below it."""
    given, snapshot = os.path.abspath(path), PathSnapshot()
    root, real = snapshot.real(policy.repo_root), snapshot.real(given)
    for link in snapshot.links_on(given):
        if is_covered(link, (root, *lock.writable(Path(policy.repo_root)))):
            raise unfit("--path", path, f"free of links that a tool may have made: {link} is one")
    if real == "/" or is_within(real, snapshot.real(policy.home)):
        raise unfit("--path", path, "a folder or file that a tool may write")
    grants = pin.grants
    scope, write = (
        tuple(snapshot.real(os.path.join(root, each)) for each in grants.get(name, ()))
        for name in ("filesystem", "write")
    )
    approved = common(scope, write) if "write" in grants.get("data_access", ()) else ()
    if not common((real,), approved):
        raise Refused(
            "SCOPE_EXCEEDED",
            f"--path: {pin.name} is not approved to write {real}"
            f" (approved: {', '.join(approved) or 'nothing'}).",
            remedy=_NEVER_WIDER.format("path"),
        )
    return real
