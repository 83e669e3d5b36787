"""Internal addresses are refused after resolution, on every connection, whatever leads to them.

In a small internet of network namespaces (lab.py), where each of them really answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAB = Path(__file__).with_name("lab.py")
pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("lab")
    for name in ("open", "dns", "http"):
        (folder / name).mkdir()
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    done = subprocess.run(
        ["unshare", *user, "--net", "--mount", sys.executable, str(LAB), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def refusals(part: dict[str, Any]) -> dict[str, str]:
    return {entry["host"]: entry["refused"] for entry in part["egress"] if entry["refused"]}


def test_without_a_sandbox_every_address_of_the_lab_answers(lab: dict[str, Any]) -> None:
    assert len(lab["direct"]) == 8
    assert set(lab["direct"].values()) == {"200"}


@pytest.mark.req("004-48")
@pytest.mark.parametrize(
    "name",
    [
        "metadata.test", "ten.test", "oneseventwo.test", "oneninetwo.test", "carrier.test",
        "benchmark.test", "loop.test", "zero.test", "six.test", "mapped.test",
    ],
)  # fmt: skip
def test_an_allowed_name_with_an_internal_address_is_refused(
    lab: dict[str, Any], name: str
) -> None:
    assert lab["names"]["codes"]["public.test"] == "200"
    assert lab["names"]["codes"][name] == "000"
    assert refusals(lab["names"])[name].startswith("internal address")


@pytest.mark.req("004-48")
def test_one_internal_answer_among_public_ones_spoils_the_name(lab: dict[str, Any]) -> None:
    assert lab["names"]["codes"]["mixed.test"] == "000"
    assert refusals(lab["names"])["mixed.test"].startswith("internal address 10.0.0.5")


@pytest.mark.req("004-48")
def test_an_address_of_the_host_that_looks_public_is_internal(lab: dict[str, Any]) -> None:
    assert lab["names"]["codes"]["own.test"] == "000"
    assert refusals(lab["names"])["own.test"] == "address 11.0.0.1 of this host"


@pytest.mark.req("004-48")
def test_a_name_that_resolves_to_something_else_the_second_time_is_judged_again(
    lab: dict[str, Any],
) -> None:
    assert lab["rebinding"]["codes"] == ["200", "000"]
    first, second = lab["rebinding"]["egress"]
    assert (first["address"], first["refused"]) == ("11.0.0.2", "")
    assert second["refused"].startswith("internal address 169.254.169.254")


@pytest.mark.req("004-48")
def test_a_redirect_to_an_internal_address_leads_nowhere(lab: dict[str, Any]) -> None:
    control, *others = lab["redirects"]["codes"]
    assert control == "200"
    assert others == ["302"] * 4  # served, and not followed to its end
    assert {entry["host"] for entry in lab["redirects"]["egress"]} == {"public.test"}


@pytest.mark.req("000-18")
def test_a_name_that_is_not_allowed_never_reaches_a_resolver(lab: dict[str, Any]) -> None:
    part = lab["wildcard"]
    assert part["codes"] == {
        "good.wild.test": "200",
        "wild.test": "000",
        "secret-data.evil.test": "000",
        "public.test.evil.test": "000",
    }
    assert part["resolver"] == ["good.wild.test"]
    assert refusals(part) == dict.fromkeys(
        ["wild.test", "secret-data.evil.test", "public.test.evil.test"], "name not allowed"
    )


@pytest.mark.req("000-54", "000-55")
def test_level_open_reaches_any_public_name_once_approved_and_logs_each(
    lab: dict[str, Any],
) -> None:
    part = lab["open"]
    assert part["without"] == ["APPROVAL_REQUIRED"]
    assert part["codes"] == {
        "anything.test": "200",
        "other.example": "200",
        "metadata.test": "000",
        "loop.test": "000",
        "169.254.169.254": "000",
    }
    made = [(each["host"], each["port"]) for each in part["egress"] if not each["refused"]]
    assert made == [("anything.test", 80), ("other.example", 80)]
    assert all(each["time_ms"] >= 0 for each in part["egress"])
    assert set(refusals(part)) == {"metadata.test", "loop.test"}


@pytest.mark.req("004-47")
def test_class_dns_tells_the_real_addresses_of_allowed_names_and_reaches_none(
    lab: dict[str, Any],
) -> None:
    told = lab["dns"]["codes"]
    assert told["public.test"] == told["good.wild.test"] == "11.0.0.2"
    refused = ("ten.test", "mixed.test", "denied.wild.test", "secret.evil.test", "wild.test")
    assert {told[name] for name in refused} == {"none"}
    assert (told["page"], told["address"]) == ("000", "000")
    assert lab["direct"]["11.0.0.2"] == "200"  # it answers: the control
    assert lab["dns"]["resolver"] == ["good.wild.test", "mixed.test", "public.test", "ten.test"]
    found = {entry["host"]: (entry["address"], entry["refused"]) for entry in lab["dns"]["egress"]}
    assert found["public.test"] == ("11.0.0.2", "")
    assert found["ten.test"][1].startswith("internal address")
    assert found["mixed.test"][1].startswith("internal address")
    assert found["secret.evil.test"][1] == "name not allowed"
    assert {text.partition(":")[0] for text in lab["dns"]["denials"]} >= {*refused}


@pytest.mark.req("004-47")
def test_without_class_dns_a_name_is_the_address_of_its_relay(lab: dict[str, Any]) -> None:
    told = lab["http"]["codes"]
    assert told["public.test"].startswith("198.18.")
    assert told["good.wild.test"].startswith("198.18.")
    assert told["page"] == "200"
    assert lab["http"]["resolver"] == ["public.test"]  # for the connection, by the relay
