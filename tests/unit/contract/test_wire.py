from __future__ import annotations

import dataclasses
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.contract_json import (
    SCHEMAS,
    contract_document,
    contract_sha256,
    identity_sha256,
    schema,
)
from actum.contract.defaults import complete
from actum.contract.parse import parse_contract
from actum.errors import Refused

from .asking import FILL, FULL, asked, contract


def read_back(one):
    return complete(parse_contract(contract_document(one)), FILL)


def test_a_full_contract_survives_the_wire():
    full = complete(parse_contract(FULL), FILL)
    assert read_back(full) == full


@given(
    stdin=st.none() | st.binary(max_size=40),
    arguments=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
    timeout_ms=st.none() | st.integers(1000, 600_000),
    write=st.none() | st.lists(st.sampled_from(["a", "/b", "../c"])),
    enabled=st.none() | st.booleans(),
)
def test_every_contract_survives_the_wire(stdin, arguments, timeout_ms, write, enabled):
    base = complete(parse_contract(FULL), FILL)
    sandbox = base.sandbox
    varied = dataclasses.replace(
        base,
        inputs=dataclasses.replace(base.inputs, stdin=stdin, arguments=tuple(arguments)),
        sandbox=dataclasses.replace(
            sandbox,
            timeout_ms=timeout_ms,
            filesystem=dataclasses.replace(
                sandbox.filesystem, write=None if write is None else tuple(write)
            ),
            network=dataclasses.replace(sandbox.network, enabled=enabled),
        ),
    )
    assert read_back(varied) == varied
    assert contract_sha256(read_back(varied)) == contract_sha256(varied)


def test_the_wire_form_has_every_section_of_the_contract():
    assert list(contract_document(contract(adapter_id="ADP-001"))) == [
        "execution_id",
        "tool_id",
        "adapter_id",
        "inputs",
        "sandbox",
        "outputs",
        "metadata",
        "determinism",
    ]


def test_stdin_is_text_on_the_wire_where_it_can_be():
    assert contract_document(contract(inputs__stdin="é"))["inputs"]["stdin"] == "é"
    binary = contract(inputs__stdin={"base64": "/w=="})
    assert contract_document(binary)["inputs"]["stdin"] == {"base64": "/w=="}


def test_the_identity_ignores_what_was_filled_and_nothing_else():
    later = dataclasses.replace(
        FILL,
        execution_id="filled-2",
        requested_at=datetime(2027, 1, 1, tzinfo=UTC),
        requested_by="user:bob",
        purpose="again",
        working_directory="/repo/other",
        adapter_id="ADP-001",
    )
    draft = parse_contract(asked())
    first, second = complete(draft, FILL), complete(draft, later)
    assert identity_sha256(first) == identity_sha256(second)
    assert contract_sha256(first) != contract_sha256(second)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("execution_id", "x"),
        ("adapter_id", "ADP-001"),
        ("tool_id", "TL-001"),
        ("inputs__command", "git"),
        ("inputs__arguments", ["a"]),
        ("inputs__parameters", {"a": 1}),
        ("inputs__environment", {"A": "1"}),
        ("inputs__working_directory", "/repo/app"),
        ("inputs__input_files", ["a"]),
        ("inputs__stdin", ""),
        ("sandbox__timeout_ms", 30_000),
        ("sandbox__filesystem__read", []),
        ("sandbox__network__level", "offline"),
        ("sandbox__processes__max_children", 0),
        ("outputs__exit_code", 0),
        ("outputs__artifacts", ["a"]),
        ("metadata__purpose", "actum exec TL-003"),
        ("metadata__evidence_ref", "E"),
        ("determinism", "D1"),
        ("session", "s"),
    ],
)
def test_whatever_the_asker_writes_changes_the_identity(field, value):
    assert identity_sha256(contract(**{field: value})) != identity_sha256(contract())


def test_order_of_keys_and_way_of_writing_do_not_change_the_digest():
    one = "tool_id: T\ninputs: {command: c, environment: {A: '1', B: '2'}}\nexecution_id: e"
    other = (
        '{"execution_id": "e", "tool_id": "T",'
        ' "inputs": {"environment": {"B": "2", "A": "1"}, "command": "c"}}'
    )
    digests = {contract_sha256(complete(parse_contract(text), FILL)) for text in (one, other)}
    assert len(digests) == 1


def test_the_digest_is_the_same_in_another_process_with_another_hash_seed():
    program = (
        "from contract.asking import *; from actum.contract.contract_json import *;"
        "print(identity_sha256(contract()), contract_sha256(contract()))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "TZ": zone},
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert printed == {f"{identity_sha256(contract())} {contract_sha256(contract())}\n"}


def test_each_listed_schema_is_handed_out_as_a_fresh_copy():
    for name in SCHEMAS:
        first = schema(name)
        first.clear()
        assert schema(name)["title"] == "Execution contract"


def test_an_unknown_schema_is_refused_with_the_names_there_are():
    with pytest.raises(Refused, match="execution-contract") as caught:
        schema("../../errors")
    assert caught.value.code == "SCHEMA_UNKNOWN"
