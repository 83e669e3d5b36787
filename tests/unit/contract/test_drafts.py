"""A document that is the same again is not parsed again; one that differs in anything is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from actum.contract import drafts as module
from actum.contract.complete import Fill, Sections, complete
from actum.contract.complete import completed as completed_by_name
from actum.contract.drafts import Drafts
from actum.contract.model import Contract
from actum.contract.parse import Draft, parse_contract, timestamp
from actum.errors import ContractInvalid
from actum.value import plain, replace


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []

    def parse(document: Mapping[str, Any]) -> Draft:
        seen.append(document)
        return parse_contract(document)

    monkeypatch.setattr(module, "parse_contract", parse)
    return seen


def document(**inputs: Any) -> dict[str, Any]:
    return {"tool_id": "TL-001", "inputs": {"command": "sh", **inputs}}


def fill(name: str = "one") -> Fill:
    moment = timestamp("2026-01-16T09:30:00Z")
    assert moment is not None
    return Fill(
        execution_id=name,
        requested_at=moment,
        requested_by="user:a",
        purpose="p",
        working_directory="/w",
    )


def completed(known: Sections, filled: Fill) -> Contract:
    return completed_by_name(known, **plain(filled))


FULL = document(
    arguments=["a"],
    parameters={"n": 1},
    environment={"A": "b"},
    stdin={"base64": "AAE="},
    secrets={"TOKEN": "env"},
) | {"sandbox": {"memory_mb": 128}, "outputs": {"exit_code": 0}}


def test_the_same_document_is_parsed_once_and_means_the_same(parsed: list[Any]) -> None:
    drafts = Drafts()
    one, two = (drafts.sections({**FULL}) for _ in range(2))
    assert len(parsed) == 1
    assert one is two
    first, second = completed(one, fill()), completed(two, fill("two"))
    assert first == complete(parse_contract(FULL), fill())
    assert replace(second, execution_id="one") == first
    assert first.sandbox is second.sandbox


def test_no_mapping_of_one_contract_is_another_ones(parsed: list[Any]) -> None:
    drafts = Drafts()
    first = completed(drafts.sections(FULL), fill())
    for name in ("parameters", "environment", "secrets"):
        mapping: Any = getattr(first.inputs, name)
        mapping["more"] = "x"
    second = completed(drafts.sections(FULL), fill())
    assert second == complete(parse_contract(FULL), fill())
    nested = document(parameters={"list": ["a"]})
    kept: Any = completed(drafts.sections(nested), fill()).inputs.parameters["list"]
    kept.append("b")
    assert completed(drafts.sections(nested), fill()).inputs.parameters == {"list": ["a"]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (document(parameters={"n": 1}), document(parameters={"n": True})),
        (document(parameters={"n": 1}), document(parameters={"n": 1.0})),
        (document(stdin="AA=="), document(stdin={"base64": "AA=="})),
        (document(arguments=["a", "b"]), document(arguments=["a b"])),
    ],
)
def test_what_is_written_otherwise_is_parsed(
    parsed: list[Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    drafts = Drafts()
    for each in (one, other):
        contract = completed(drafts.sections(each), fill())
        assert repr(contract) == repr(complete(parse_contract(each), fill()))
    assert len(parsed) == 2


def test_what_is_malformed_is_refused_each_time(parsed: list[Any]) -> None:
    drafts = Drafts()
    drafts.sections(document(stdin="eA=="))
    for wrong in (
        document(stdin=b"eA=="),
        document(stdin=1),
        {"tool_id": "x"},
        document(x=object()),
    ):
        for _ in range(2):
            with pytest.raises(ContractInvalid):
                drafts.sections(wrong)
    assert len(parsed) == 9


def test_few_and_small_ones_are_kept(parsed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    drafts = Drafts()
    for number in range(10):
        drafts.sections(document(arguments=[str(number)]))
        assert len(drafts._kept) <= 3
    large = document(stdin="x" * 100_000)
    for _ in range(2):
        drafts.sections(large)
    assert len(parsed) == 12
