from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.egress import INTERNAL_NETWORKS, internal_network
from actum.sandbox.egress.judge import refusal


@pytest.mark.req("004-48")
@pytest.mark.parametrize("network", INTERNAL_NETWORKS, ids=str)
def test_the_first_and_the_last_address_of_every_internal_range_are_refused(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> None:
    for address in (network[0], network[-1]):
        assert refusal(address).startswith("internal address")


@pytest.mark.req("004-48")
@pytest.mark.parametrize("network", [n for n in INTERNAL_NETWORKS if n.version == 4], ids=str)
def test_no_ipv6_form_of_an_internal_ipv4_address_gets_through(
    network: ipaddress.IPv4Network,
) -> None:
    number = int(network[-1])
    forms = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),  # mapped
        ipaddress.IPv6Address(number),  # compatible
        ipaddress.IPv6Address((0xFFFF << 48) | number),  # translated
        ipaddress.IPv6Address((0x64FF9B << 96) | number),  # NAT64
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),  # 6to4
    ]
    for address in forms:
        assert refusal(address).startswith("internal address"), address


@pytest.mark.req("004-48")
@pytest.mark.parametrize(
    "text",
    [
        "169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254",
        "0.0.0.0", "255.255.255.255", "::", "4000::1", "e000::1",
    ],
)  # fmt: skip
def test_metadata_services_and_what_is_no_unicast_are_refused(text: str) -> None:
    assert refusal(ipaddress.ip_address(text)).startswith("internal address")


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111"])
def test_public_addresses_are_public(text: str) -> None:
    assert internal_network(ipaddress.ip_address(text)) == ""


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_never_public_here(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if getattr(address, "ipv4_mapped", None) is not None:
        return  # it is judged as what it stands for
    if address.is_private or address.is_link_local or address.is_multicast or address.is_reserved:
        assert internal_network(address)


@pytest.mark.req("004-48")
def test_every_address_of_this_host_is_refused() -> None:
    """Also one that looks public; that one is tried in tests/security/network."""
    found = {item[4][0] for item in socket.getaddrinfo(socket.gethostname(), None)}
    for text in {*found, "127.0.0.1", "::1"}:
        assert refusal(ipaddress.ip_address(str(text).partition("%")[0]))
