"""A tool approved for https to a host is not approved for whatever else listens there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from network.outside import Net

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    folder = tmp_path_factory.mktemp("ports")
    opened = Net(folder, hosts=["plain.test", "*.wild.test", "odd.test:8022"], outbound=["https"])
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "asked",
    ["plain.test:22", "plain.test:80", "x.wild.test:22", "*.wild.test:22", "odd.test:22"],
)
def test_a_contract_cannot_name_a_port_that_nobody_approved(net: Net, asked: str) -> None:
    result = net.ask("echo started", enabled=True, allow=[asked])
    assert result.result is None
    assert result.reason_codes == ("SCOPE_EXCEEDED",)


@pytest.mark.parametrize(
    "asked", ["plain.test", "plain.test:443", "x.wild.test:443", "odd.test:8022", "*.wild.test"]
)
def test_the_ports_of_its_classes_and_those_in_its_scope_are_approved(net: Net, asked: str) -> None:
    result = net.run("echo started", enabled=True, allow=[asked])
    assert result.result is not None
    assert result.result.stdout == "started\n"


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_a_port_that_does_not_exist_is_refused_and_ends_no_sandbox(
    tmp_path: Path, port: str
) -> None:
    broken = Net(tmp_path, hosts=[f"plain.test:{port}"], outbound=["https"])
    result = broken.ask("echo started", enabled=True, allow=[f"plain.test:{port}"])
    broken.close()
    assert result.result is None
    assert "SCOPE_EXCEEDED" in result.reason_codes
