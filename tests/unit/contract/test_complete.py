from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from actum.contract.defaults import complete
from actum.contract.model import (
    ArtifactSpec,
    Contract,
    Determinism,
    ExpectedOutputs,
    FilesystemLevel,
    FilesystemRequest,
    Inputs,
    Metadata,
    NetworkLevel,
    NetworkRequest,
    ProcessRequest,
    SandboxRequest,
    StreamMode,
)
from actum.contract.parse import parse_contract

from .asking import FILL, FULL, contract

WRITTEN = Contract(
    execution_id="run-7",
    tool_id="TL-003",
    adapter_id="ADP-001",
    inputs=Inputs(
        command="rg",
        arguments=("-n", "needle"),
        parameters={"pattern": "needle", "depth": 3, "ratio": 0.5, "flags": ["a", "b"]},
        environment={"LANG": "C"},
        working_directory="/repo/app",
        input_files=("src/a.txt",),
        stdin=b"some text\n",
    ),
    sandbox=SandboxRequest(
        timeout_ms=5000,
        memory_mb=256,
        cpu_cores=2,
        filesystem=FilesystemRequest(
            level=FilesystemLevel.EXTENDED,
            read=("/repo",),
            write=("out",),
            deny=("/repo/secret",),
        ),
        network=NetworkRequest(
            level=NetworkLevel.API,
            enabled=True,
            allow=("api.example.com",),
            deny=("bad.example.com",),
        ),
        processes=ProcessRequest(max_children=4, allow_fork=True),
    ),
    outputs=ExpectedOutputs(
        stdout=StreamMode.EXPECTED,
        exit_code=0,
        output_files=("out/report.txt",),
        artifacts=(
            ArtifactSpec(name="log.txt", path="log.txt"),
            ArtifactSpec(name="report", path="report.json", type="json"),
        ),
    ),
    metadata=Metadata(
        requested_by="agent:planner",
        requested_at=datetime(2026, 1, 16, 10, 30, tzinfo=timezone(timedelta(hours=1))),
        purpose="find the needle",
        evidence_ref="EVD-1",
    ),
    determinism=Determinism.D1,
    session="s-1",
)


def test_every_section_of_a_written_contract_is_taken_as_written():
    completed = complete(parse_contract(FULL), FILL)
    assert completed == WRITTEN
    assert completed.filled == frozenset()


def test_what_is_left_out_is_filled_and_marked():
    assert contract() == Contract(
        execution_id="filled-1",
        tool_id="TL-003",
        adapter_id=None,
        inputs=Inputs(command="rg", working_directory="/repo/app"),
        metadata=Metadata(
            requested_by="user:ada",
            requested_at=datetime(2026, 1, 16, 9, 30, tzinfo=UTC),
            purpose="actum exec TL-003",
        ),
        filled=frozenset(
            {
                "execution_id",
                "adapter_id",
                "inputs.working_directory",
                "metadata.requested_by",
                "metadata.requested_at",
                "metadata.purpose",
            }
        ),
    )


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("execution_id", "mine", "execution_id"),
        ("adapter_id", "ADP-9", "adapter_id"),
        ("inputs__working_directory", "/elsewhere", "inputs.working_directory"),
        ("metadata__requested_by", "agent:b", "metadata.requested_by"),
        ("metadata__requested_at", "2026-01-01T00:00:00Z", "metadata.requested_at"),
        ("metadata__purpose", "because", "metadata.purpose"),
    ],
)
def test_what_is_written_is_neither_replaced_nor_marked(field, value, name):
    completed = contract(**{field: value})
    assert contract().filled - completed.filled == {name}
    section: object = completed
    for step in field.split("__"):
        section = getattr(section, step)
    assert section == (datetime(2026, 1, 1, tzinfo=UTC) if "requested_at" in field else value)


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        (".", "/repo/app"),
        ("sub/./dir/", "/repo/app/sub/dir"),
        ("../other", "/repo/app/../other"),
        ("/abs//dir", "/abs/dir"),
        ("/repo/../etc", "/repo/../etc"),
    ],
)
def test_a_relative_working_directory_is_joined_but_never_resolved(written, taken):
    assert contract(inputs__working_directory=written).inputs.working_directory == taken


def test_stdin_is_bytes_whichever_way_it_was_written():
    assert contract().inputs.stdin is None
    assert contract(inputs__stdin="").inputs.stdin == b""
    assert contract(inputs__stdin="é").inputs.stdin == b"\xc3\xa9"
    assert contract(inputs__stdin={"base64": "/w A=\n"}).inputs.stdin == b"\xff\x00"


def test_an_empty_list_asks_for_nothing_and_an_absent_one_for_the_default():
    assert contract(sandbox__filesystem__write=[]).sandbox.filesystem.write == ()
    assert contract().sandbox.filesystem.write is None
    assert contract(sandbox__network__allow=[]).sandbox.network.allow == ()
    assert contract().sandbox.network.allow is None


def test_limits_that_were_not_asked_for_stay_unsaid():
    assert contract().sandbox == SandboxRequest()
