"""A result as it is kept is, to the byte, the document that it is made of."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.capture.model import Connection, Denial, Enforced, Stream
from actum.capture.streams import SILENCE, whole
from actum.contract.encoder import encode
from actum.contract.outcome import Outcome, ToolRunStatus
from actum.engine import result as results
from actum.engine.result import ArtifactRef, Attempt, FellBack, Result, ToolRunResult, encoded
from actum.errors import Violation
from actum.evidence.forms import Form, mark
from actum.value import replace

ROWS = (Enforced(limit="timeout_ms", requested="1", mechanism="timer", enforced=True, peak=3),)
SILENT = encoded(SILENCE)[1]
LOUD = encoded(Stream(kept=b"a", total_bytes=1, sha256="d" * 64))[1]
RUN = ToolRunResult(
    status=ToolRunStatus.SUCCESS,
    exit_code=0,
    stdout="",
    stderr="",
    artifacts=(),
    duration_ms=2,
    error_reason=None,
)
TEXT = st.one_of(st.sampled_from(["%", "%b", "é", '"', "/x%"]), st.text(max_size=20))


def make(**changes: Any) -> Result:
    receipt_id = changes.pop("receipt_id", None) or str(uuid.uuid4())
    values: dict[str, Any] = {
        "execution_id": str(uuid.uuid4()),
        "trace_id": str(uuid.uuid4()),
        "session": "ses-1",
        "tool_id": "TL-001",
        "adapter_id": "ADP-001",
        "runner_type": "local",
        "attempts": 1,
        "outcome": Outcome.SUCCEEDED,
        "reason_codes": (),
        "result": RUN,
        "streams": {"stdout": SILENT, "stderr": SILENT},
        "enforcement": ROWS,
        "receipt_id": receipt_id,
        "receipt_at": f"{changes.pop('folder', '/home/receipts')}/{receipt_id}.json",
    }
    return Result(**values | changes)


def learn(**changes: Any) -> None:
    for _ in range(3):
        make(**changes).kept()


@given(session=TEXT, tool_id=TEXT, folder=TEXT, attempts=st.integers(0, 3))
def test_a_result_that_repeats_another(
    session: str, tool_id: str, folder: str, attempts: int
) -> None:
    same: dict[str, Any] = {"session": session, "tool_id": tool_id, "attempts": attempts}
    learn(**same, folder=folder)
    result = make(**same, folder=folder, output="what it said")
    assert result.kept() == encode(result.without_output())
    assert any(form is not None for _, form in results._kept.values())


def test_a_result_of_a_tool_that_said_something() -> None:
    for text in (b"one", b"two", b"six", b"ten", b"\xff\xff\xff", b"\xff\xfe\xff", b"lone"):
        said = encoded(whole(text, 10))[1]
        for streams in (
            {"stdout": said, "stderr": SILENT},
            {"stdout": SILENT, "stderr": said},
            {"stdout": said, "stderr": said},
            {"stdout": replace(said, truncated=True), "stderr": SILENT},
            {"stdout": replace(said, sha256="no digest"), "stderr": SILENT},
        ):
            result = make(streams=streams)
            assert result.kept() == encode(result.without_output())


def artifact(**changes: Any) -> ArtifactRef:
    values: dict[str, Any] = {
        "name": "value.json",
        "path": "out/value.json",
        "type": "artifact",
        "size": 3,
        "sha256": uuid.uuid4().hex * 2,
        "blake3": uuid.uuid4().hex * 2,
    }
    return ArtifactRef(**values | changes)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"name": "other"},
        {"path": "%b"},
        {"type": "output_file"},
        {"size": 4},
        {"sha256": "A" * 64},
        {"blake3": "é"},
        {"trace_id": "another"},
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_result_with_files(change: dict[str, Any], count: int) -> None:
    for each in ({}, {}, {}, change, change, change):
        trace_id = str(uuid.uuid4())
        files = tuple(artifact(**{"trace_id": trace_id} | each) for _ in range(count))
        result = make(trace_id=trace_id, result=replace(RUN, artifacts=files))
        assert result.kept() == encode(result.without_output())


@pytest.mark.parametrize(
    "change",
    [
        {"execution_id": '"'},
        {"trace_id": "é"},
        {"receipt_id": "a/b"},
        {"receipt_at": "/elsewhere.json"},
        {"session": "ses-2"},
        {"session": f"about {mark(0)}"},
        {"tool_id": "TL-002"},
        {"adapter_id": None},
        {"runner_type": None},
        {"attempts": 2},
        {"outcome": Outcome.TOOL_ERROR},
        {"reason_codes": ("TOOL_ERROR",)},
        {"violations": (Violation(code="IV-01", field="f", value="v", message="m"),)},
        {"result": None},
        {"result": replace(RUN, status=ToolRunStatus.ERROR)},
        {"result": replace(RUN, exit_code=1)},
        {"result": replace(RUN, duration_ms=3)},
        {"result": replace(RUN, error_reason="it says")},
        {
            "result": replace(
                RUN,
                artifacts=(
                    ArtifactRef(
                        name="a", path="a", type="b", size=1, sha256="", blake3="", trace_id=""
                    ),
                ),
            )
        },
        {"streams": None},
        {"streams": {"stdout": LOUD, "stderr": SILENT}},
        {"streams": {"stdout": SILENT, "stderr": LOUD}},
        {"enforcement": (replace(ROWS[0], peak=4),)},
        {"denials": (Denial(kind="fork", target="x", time_ms=1),)},
        {"egress": (Connection(host="h", port=1, address="", time_ms=1),)},
        {"replayed": True},
        {"cached": "other"},
        {"determinism": {"level": "D1"}},
        {"fallback": FellBack(adapter_id="a", condition="c")},
        {
            "history": (
                Attempt(
                    attempt=1,
                    adapter_id="a",
                    outcome="o",
                    code=0,
                    transport_failure=False,
                    duration_ms=1,
                    proof_sha256="",
                    output_digest="",
                    why="",
                ),
            )
        },
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_other_result_is_kept_as_it_is(change: dict[str, Any]) -> None:
    learn()
    before = make().kept()
    for _ in range(3):
        result = make(**change)
        assert result.kept() == encode(result.without_output())
        assert result.kept() != before


def test_a_form_that_does_not_give_back_what_was_written_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (*ROWS, *ROWS)
    make(enforcement=rows).kept()
    monkeypatch.setattr(Form, "filled", lambda *_: b"{}")
    result = make(enforcement=rows)
    assert result.kept() == result.kept() == encode(result.without_output())


def test_results_that_came_are_not_kept_for_ever() -> None:
    for number in range(2 * results._MOST_KEPT):
        result = make(session=f"ses-{number}")
        assert result.kept() == result.kept()
        assert len(results._kept) <= results._MOST_KEPT
