"""What was carried out in a session, in a way that it repeats, is not carried out again in it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Result, Runtime
from actum.evidence.records.evidence_record import EvidenceRecords
from actum.evidence.traces import Traces
from actum.execution import result_cache

D2 = {"determinism": "D2", "sandbox.filesystem.write": []}


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime.temporary(pool=False) as opened:
        (opened.settings.root / "data").write_text("one\n")
        settle()
        yield opened


def settle() -> None:
    """Until a change made now can be told from the next one."""
    time.sleep(2 * result_cache._RECENT_NS / 1e9)


def run(runtime: Runtime, script: str = "cat data", **fields: object) -> Result:
    return runtime.exec("shell", stdin=script, set={**D2, **fields}).check()  # type: ignore[arg-type]


def events(runtime: Runtime, result: Result) -> list[str]:
    return [
        event["event_type"] for event in Traces(runtime.database).of_execution(result.execution_id)
    ]


def predicate(result: Result) -> dict[str, Any]:
    envelope = json.loads(Path(result.receipt_path).read_bytes())
    signed: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    return signed


def final(runtime: Runtime, result: Result) -> dict[str, Any]:
    """The audit record that closed an execution."""
    rows = runtime.database.rows("SELECT record FROM audit ORDER BY seq")
    (found,) = (
        record
        for record in map(json.loads, (row[0] for row in rows))
        if (record["kind"], record.get("execution_id")) == ("FINAL", result.execution_id)
    )
    return dict(found)


@pytest.mark.sandbox
@pytest.mark.req("000-170", "000-172")
def test_the_same_again_is_answered_marked_and_on_record(runtime: Runtime) -> None:
    first = run(runtime)
    shown = bytearray()
    again = runtime.exec(
        "shell", stdin="cat data", set=D2, on_output=lambda _name, chunk: shown.extend(chunk)
    ).check()
    assert first.cached is None
    assert again.cached == first.execution_id
    assert again.execution_id != first.execution_id
    assert first.result is not None
    assert again.result is not None
    assert (again.result.stdout, bytes(shown)) == (first.result.stdout, b"one\n")
    assert again.attempts == 0
    # No tool ran; and yet there are trace, audit, evidence and a receipt of its own.
    assert "tool_run_start" in events(runtime, first)
    assert events(runtime, again) == ["cached", "determinism"]
    assert again.receipt_id != first.receipt_id
    (record,) = EvidenceRecords(runtime.database).of_execution(again.execution_id)
    assert record["outcome"] == "SUCCEEDED"
    items = [item for section in record["checklists"].values() for item in section]
    assert len(items) > 10
    assert [item for item in items if item["verdict"] == "fail"] == []
    # Each of them says that the result is a cached one, and which.
    source = {"execution_id": first.execution_id, "receipt_id": first.receipt_id}
    assert record["cached"] == source
    assert predicate(again)["cached"] == source
    assert final(runtime, again)["cached"] == first.execution_id
    assert (final(runtime, again)["status"], final(runtime, again)["outcome"]) == (
        "SUCCESS",
        "SUCCEEDED",
    )
    # The control: the first one says that it is none.
    (own,) = EvidenceRecords(runtime.database).of_execution(first.execution_id)
    assert (own["cached"], final(runtime, first)["cached"]) == (None, None)
    assert "cached" not in predicate(first)


@pytest.mark.sandbox
@pytest.mark.req("000-170")
def test_any_change_of_the_inputs_is_another_execution(runtime: Runtime) -> None:
    run(runtime)
    assert run(runtime).cached  # positive control
    assert run(runtime, "cat  data").cached is None
    assert run(runtime, **{"inputs.environment": {"LC_ALL": "C"}}).cached is None
    assert run(runtime, **{"inputs.arguments": ["x"]}).cached is None
    assert run(runtime, **{"sandbox.memory_mb": 128}).cached is None
    # A file that nobody declared, and that the tool may read all the same.
    (runtime.settings.root / "data").write_text("two\n")
    settle()
    changed = run(runtime)
    assert changed.cached is None
    assert changed.result is not None
    assert changed.result.stdout == "two\n"


@pytest.mark.sandbox
def test_what_changed_this_instant_is_not_relied_on(runtime: Runtime) -> None:
    (runtime.settings.root / "data").write_text("now\n")
    run(runtime)
    assert run(runtime, "true; cat data").cached is None


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "fields",
    [
        {"determinism": "D1"},
        {"determinism": "D0"},
        {"sandbox.filesystem.write": ["."]},
    ],
)
def test_only_what_was_verified_is_kept(runtime: Runtime, fields: dict[str, object]) -> None:
    run(runtime, **fields)
    assert run(runtime, **fields).cached is None


@pytest.mark.sandbox
def test_what_differs_or_fails_is_carried_out_again(runtime: Runtime) -> None:
    for script in ("cut -d' ' -f22 /proc/self/stat; sleep 0.05", "cat data; exit 3"):
        first = runtime.exec("shell", stdin=script, set=D2)
        again = runtime.exec("shell", stdin=script, set=D2)
        assert (first.cached, again.cached) == (None, None)


@pytest.mark.sandbox
def test_files_come_back_too(runtime: Runtime) -> None:
    script = "echo made > $ACTUM_ARTIFACTS/a"
    first, again = run(runtime, script), run(runtime, script)
    assert again.cached
    assert first.result is not None
    assert again.result is not None
    assert [item.sha256 for item in again.result.artifacts] == [
        item.sha256 for item in first.result.artifacts
    ]
    assert runtime.blobs.read(again.result.artifacts[0].blake3) == b"made\n"


@pytest.mark.sandbox
@pytest.mark.req("000-170")
def test_it_ends_with_its_session(runtime: Runtime) -> None:
    first = run(runtime, session="one")
    assert run(runtime, session="two").cached is None
    with Runtime.open(runtime.settings.root, session="one", pool=False) as other:
        # Another process of the same session.
        result = other.exec("shell", stdin="cat data", cwd=runtime.settings.root, set=D2).check()
        assert result.cached == first.execution_id
        other.end_session("one")
        after = other.exec("shell", stdin="cat data", cwd=runtime.settings.root, set=D2).check()
        assert after.cached is None


@pytest.mark.sandbox
@pytest.mark.req("000-170")
def test_ending_the_runtimes_own_session_drops_what_is_in_memory(runtime: Runtime) -> None:
    run(runtime)
    assert run(runtime).cached  # positive control
    runtime.end_session()
    assert run(runtime).cached is None


@pytest.mark.sandbox
def test_the_records_verify(runtime: Runtime) -> None:
    run(runtime)
    again = run(runtime)
    assert again.cached
    findings = runtime.verifier.verify_all()
    assert len(findings) > 10
    assert [finding for finding in findings if not finding.passed] == []


def test_too_many_files_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    settle()
    assert result_cache._state([str(tmp_path)], ()) is not None
    monkeypatch.setattr(result_cache, "_FILES", 10)
    assert result_cache._state([str(tmp_path)], ()) is None
