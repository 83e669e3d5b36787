from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.call import NetworkPolicy
from actum.contract.egress import (
    Endpoint,
    is_odd_spelling,
    literal,
    plan_egress,
    split_address,
)


def policy(
    *allow: str,
    deny: tuple[str, ...] = (),
    outbound: tuple[str, ...] = ("http", "https"),
    internal: tuple[str, ...] = (),
    enabled: bool = True,
) -> NetworkPolicy:
    return NetworkPolicy(
        enabled=enabled, allow=allow, deny=deny, outbound=outbound, internal=internal
    )


@pytest.mark.req("004-47")
def test_a_plain_host_stands_for_the_ports_of_the_tools_classes() -> None:
    both = (Endpoint("a.test", 80), Endpoint("a.test", 443))
    assert plan_egress(policy("A.test.")).endpoints == both
    assert plan_egress(policy("a.test", outbound=("https",))).endpoints == both[1:]
    assert plan_egress(policy("a.test", outbound=("tcp",))).endpoints == ()


@pytest.mark.req("004-47")
def test_a_named_port_stands_for_itself_if_the_tool_connects_at_all() -> None:
    for outbound in (("http",), ("https",), ("tcp",)):
        found = plan_egress(policy("a.test:8080", outbound=outbound))
        assert found.endpoints == (Endpoint("a.test", 8080),)
    for outbound in ((), ("dns",)):
        assert plan_egress(policy("a.test:8080", "*:80", outbound=outbound)).endpoints == ()
        assert plan_egress(policy("*", outbound=outbound)).patterns == ()


@pytest.mark.req("000-17")
def test_a_network_that_is_off_reaches_nothing() -> None:
    plan = plan_egress(policy("a.test", "*", enabled=False))
    assert (plan.endpoints, plan.patterns) == ((), ())


@pytest.mark.req("000-19")
@pytest.mark.parametrize("deny", ["a.test", "a.test:443", "*.test", "*", "*:443", "A.TEST."])
def test_deny_takes_away_what_allow_gives(deny: str) -> None:
    plan = plan_egress(policy("a.test", deny=(deny,), outbound=("https",)))
    assert plan.endpoints == ()


@pytest.mark.req("000-19")
@pytest.mark.parametrize("deny", ["x.w.test", "*.w.test", "*", "*:80", "x.w.test:80"])
def test_deny_takes_away_what_a_wildcard_gives(deny: str) -> None:
    plan = plan_egress(policy("*.w.test", deny=(deny,), outbound=("http",)))
    assert plan.ports_of("x.w.test") == ()
    assert plan_egress(policy("*.w.test", outbound=("http",))).ports_of("x.w.test") == (80,)


def test_a_denied_port_leaves_the_others() -> None:
    plan = plan_egress(policy("*.w.test", deny=("*.w.test:80",)))
    assert plan.ports_of("x.w.test") == (443,)


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("*.w.test", "x.w.test", True),
        ("*.w.test", "a.b.w.test", True),
        ("*.w.test", "w.test", False),
        ("*.w.test", "xw.test", False),
        ("*.w.test", "x.w.test.evil.test", False),
        ("*", "anything.test", True),
    ],
)
def test_a_wildcard_stands_for_names_below_its_suffix(
    pattern: str, name: str, covered: bool
) -> None:
    assert bool(plan_egress(policy(pattern)).ports_of(name)) is covered


def test_only_approved_endpoints_may_be_internal() -> None:
    plan = plan_egress(policy("a.test", "b.test", internal=("a.test:443",)))
    assert plan.may_be_internal(Endpoint("a.test", 443))
    assert not plan.may_be_internal(Endpoint("a.test", 80))
    assert not plan.may_be_internal(Endpoint("b.test", 443))


@pytest.mark.parametrize(
    "text",
    ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "1.2.3", "a.0x1", "１２７.0.0.1"],
)
def test_what_a_resolver_would_take_for_an_address_is_an_odd_spelling(text: str) -> None:
    assert is_odd_spelling(text)


@pytest.mark.parametrize("text", ["127.0.0.1", "::1", "a.test", "1a.test", "4.example", "a1"])
def test_names_and_plain_addresses_are_no_odd_spellings(text: str) -> None:
    assert not is_odd_spelling(text)


@given(st.ip_addresses())
def test_an_address_has_one_spelling(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert literal(str(address)) == address
    text = f"[{address}]:80" if address.version == 6 else f"{address}:80"
    assert split_address(text) == (address, 80)
    assert str(Endpoint(str(address), 80)) == text


@pytest.mark.parametrize("text", ["127.0.0.1", "a.test:80", "127.0.0.1:0", "127.0.0.1:65536", ":1"])
def test_a_place_is_an_address_and_a_port(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S|"):
        split_address(text)
