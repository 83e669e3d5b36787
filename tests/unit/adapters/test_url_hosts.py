"""Which hosts a call requests by its URLs: one host each, never a pattern or other text."""

from __future__ import annotations

import pytest
from policy.factories import make_contract, make_entry

from actum.adapters.url_hosts import with_url_hosts

SCHEMA = {"type": "object", "properties": {"url": {"type": "string", "x-actum": "url"}}}


def requested(url: str) -> tuple[str, ...] | None:
    entry = make_entry(args_schema=SCHEMA)
    contract = make_contract(arguments=(), parameters={"url": url})
    return with_url_hosts(contract, entry).sandbox.network.allow


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://a.test/x", "a.test:443"),
        ("http://A.test:8080?q", "a.test:8080"),
        ("http://a.test./", "a.test.:80"),
        ("http://10.0.0.7/", "10.0.0.7:80"),
        ("https://[::1]:8443/", "[::1]:8443"),
        ("http://a.test#@b.test/", "a.test:80"),
    ],
)
def test_the_host_of_a_url_is_requested(url: str, host: str) -> None:
    assert requested(url) == (host,)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.ok.test at .evil.test/",  # an approval of *.ok.test would cover it
        "http://*.test/",
        "http://*/",
        "http://a.test\\b.test/",
        "http://a.test,b.test/",
        "http://a%2eb.test/",
        "http://-a.test/",
        "ftp://a.test/",
        "a.test",
    ],
)
def test_text_that_names_no_single_host_requests_none(url: str) -> None:
    assert requested(url) is None
