from __future__ import annotations

import pytest

from actum.policy.gates import ApprovalNeeded
from actum.policy.standing_cover import as_bounds, covers


def connect(target: str) -> ApprovalNeeded:
    return ApprovalNeeded(gate="AG-03", target=target, operation="connect")


def write(target: str) -> ApprovalNeeded:
    return ApprovalNeeded(gate="AG-04", target=target, operation="write")


@pytest.mark.parametrize(
    ("host", "target", "covered"),
    [
        ("db.corp", "db.corp:5432 at 10.0.0.7:5432", True),
        ("db.corp:5432", "db.corp:5432 at 10.0.0.7:5432", True),
        ("DB.Corp.", "db.corp:5432 at 10.0.0.7:5432", True),
        ("*.corp", "db.corp:5432 at 10.0.0.7:5432", True),
        ("10.0.0.7", "10.0.0.7:443", True),
        ("::1", "[::1]:443", True),
        ("db.corp:5433", "db.corp:5432 at 10.0.0.7:5432", False),
        ("corp", "db.corp:5432 at 10.0.0.7:5432", False),
        ("*.corp", "corp:443 at 10.0.0.7:443", False),
        ("b.corp", "db.corp:5432 at 10.0.0.7:5432", False),
        ("10.0.0.7", "db.corp:5432 at 10.0.0.7:5432", False),
        ("db.corp", "any host", False),
        ("*", "any host", False),
    ],
)
def test_hosts_are_compared_as_in_a_contract(host: str, target: str, covered: bool) -> None:
    assert covers(connect(target), hosts=[host], paths=["/"], reached=["db.corp"]) is covered


@pytest.mark.parametrize(
    ("reached", "covered"),
    [
        (("db.corp:5432",), True),
        (("db.corp:5432", "DB.corp:5432."), False),
        (("db.corp",), False),
        (("db.corp:5432", "other.corp:5432"), False),
        ((), False),
    ],
)
def test_class_tcp_is_covered_if_every_host_of_the_call_is(
    reached: tuple[str, ...], covered: bool
) -> None:
    need = connect("class tcp")
    assert covers(need, hosts=["db.corp:5432"], paths=[], reached=reached) is covered


@pytest.mark.parametrize(
    ("target", "covered"),
    [
        ("/srv/out", True),
        ("/srv/out/deep/er", True),
        ("/srv/out2", False),
        ("/srv", False),
        ("/srv/out/../secret", False),
    ],
)
def test_paths_are_compared_by_whole_components(target: str, covered: bool) -> None:
    assert covers(write(target), hosts=["*"], paths=["/srv/out"], reached=[]) is covered


@pytest.mark.parametrize("gate", ["AG-01", "AG-02", "AG-05", "AG-06"])
def test_no_other_gate_is_covered(gate: str) -> None:
    need = ApprovalNeeded(gate=gate, target="/srv/out", operation="write")
    assert not covers(need, hosts=["*", "/srv/out"], paths=["/"], reached=["/srv/out"])
    assert as_bounds(need) == ""


def test_a_need_can_be_written_as_options() -> None:
    assert as_bounds(write("/srv/a b")) == "--path '/srv/a b'"
    assert as_bounds(connect("db.corp:5432 at 10.0.0.7:5432")) == "--host db.corp:5432"
    assert as_bounds(connect("class tcp")) == as_bounds(connect("any host")) == ""
