"""An execution of the past once more: identical, diverged and where, or not replayable and why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actum import Refused, Runtime


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime.temporary(pool=False) as opened:
        yield opened


def contract(script: str, **more: object) -> dict[str, object]:
    return {"tool_id": "TL-010", "inputs": {"command": "sh", "stdin": script}, **more}


@pytest.mark.sandbox
def test_what_repeats_is_identical_and_really_ran_again(runtime: Runtime) -> None:
    asked = contract(
        "echo hi; echo made > $ACTUM_ARTIFACTS/a; date",
        determinism="D2",
        sandbox={"filesystem": {"write": []}},
    )
    first = runtime.execute(asked).check()
    found = runtime.replay(first.execution_id, asked)
    assert (found.verdict, found.differs) == ("identical", ())
    assert found.result is not None
    assert (found.result.cached, found.result.replayed) == (None, False)
    assert found.result.execution_id != first.execution_id
    assert found.result.session not in runtime.services.sessions.names()


@pytest.mark.sandbox
def test_what_diverged_is_named(runtime: Runtime) -> None:
    data = runtime.settings.root / "data"
    data.write_text("one\n")
    asked = contract("cat data; cp data $ACTUM_ARTIFACTS/x; grep -q one data")
    first = runtime.execute(asked).check()
    data.write_text("three\n")
    found = runtime.replay(first.execution_id, asked)
    assert found.verdict == "diverged"
    assert [line.partition(":")[0] for line in found.differs] == [
        "outcome",
        "exit_code",
        "stdout",
        "file artifact x",
    ]
    data.write_text("one\n")
    assert runtime.replay(first.execution_id, asked).verdict == "identical"


@pytest.mark.sandbox
def test_what_cannot_be_compared_is_said(runtime: Runtime) -> None:
    asked = contract("echo hi")
    first = runtime.execute(asked).check()
    other = runtime.replay(first.execution_id, contract("echo ho"))
    assert (other.verdict, other.result) == ("not replayable", None)
    assert "not the one" in other.why
    refused = runtime.execute(contract("true", determinism="D3"))
    never = runtime.replay(refused.execution_id, contract("true", determinism="D3"))
    assert "nothing ran then" in never.why
    with pytest.raises(Refused) as caught:
        runtime.replay("no-such", asked)
    assert caught.value.code == "EXECUTION_UNKNOWN"
