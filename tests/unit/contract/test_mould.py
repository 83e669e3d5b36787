"""Contracts of one mould are those that the words would give one by one, digests and all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actum.contract.complete import completed, sections
from actum.contract.ids import new_id
from actum.contract.model import Contract
from actum.contract.mould import _MOST_STDIN, Mould
from actum.contract.parse import parse_contract
from actum.contract.wire import contract_sha256, digests, request_key

FIRST = datetime(2026, 11, 15, 12, 0, 0, 250_000, tzinfo=UTC)


def document(metadata: dict[str, Any] | None = None, **inputs: Any) -> dict[str, Any]:
    return {
        "tool_id": "TL-001",
        "inputs": {"command": "sh", **inputs},
        **({} if metadata is None else {"metadata": metadata}),
    }


def made(source: dict[str, Any], at: datetime = FIRST, base: str = "/w") -> Contract:
    return completed(
        sections(parse_contract(source)),
        execution_id=new_id(),
        requested_at=at,
        requested_by="user:a",
        purpose='"why" \\ \u00e9\u0001',
        working_directory=base,
    )


@pytest.mark.parametrize(
    "source",
    [
        document(),
        document(arguments=["a"], parameters={"n": 1}, environment={"A": "b"}, stdin="in"),
        document({"purpose": 'a "reason"\n', "requested_by": "user:\u00fc"}),
        document({"evidence_ref": "case:7"}),
        document({"evidence_ref": "case:7", "purpose": "p"}, secrets={"TOKEN": "env"}),
        document() | {"session": "s", "determinism": "D1", "sandbox": {"memory_mb": 64}},
    ],
    ids=range(6),
)
def test_one_more_is_what_would_be_made_anew(source: dict[str, Any]) -> None:
    mould = Mould(made(source))
    for number, stdin in enumerate((None, b"x", b"y", b"\xff", b"y", b"z" * (_MOST_STDIN + 1))):
        at = FIRST + timedelta(days=number, microseconds=number * 250_000)
        wanted = made(source, at)
        if stdin is not None:
            with_stdin = document(**{**source["inputs"], "stdin": "-"})["inputs"]
            wanted = made({**source, "inputs": with_stdin}, at)
            wanted = Mould(wanted).contract(wanted.execution_id, at, stdin)
            assert wanted.inputs.stdin == stdin
        one = mould.contract(wanted.execution_id, at, stdin)
        assert one == wanted
        assert mould.request == request_key(wanted)
        assert mould.digests(one) == digests(wanted, request_key(wanted))
        assert mould.digests(one)[0] == contract_sha256(one)


def test_what_names_its_id_or_time_has_no_mould() -> None:
    for source in (
        document() | {"execution_id": "mine"},
        document({"requested_at": "2026-11-15T12:00:00Z"}),
    ):
        assert not Mould.fits(sections(parse_contract(source)))
    assert Mould.fits(sections(parse_contract(document())))
