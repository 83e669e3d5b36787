"""`expected`: what a tool says is compared with what a person has said is right."""

from __future__ import annotations

import os
import time

import pytest

from actum import Outcome, Refused, Result, Runtime
from actum.evidence.garbage import collect
from actum.execution.preparation import prepare

WHO = {"by": "ada", "why": "looked at it"}


@pytest.fixture(scope="module")
def runtime():
    with Runtime.temporary(pool=False) as opened:
        yield opened


def contract(runtime: Runtime, script: str, **outputs: object) -> dict[str, object]:
    return {
        "tool_id": "TL-010",
        "inputs": {
            "command": "sh",
            "stdin": script,
            "working_directory": str(runtime.settings.root),
        },
        "sandbox": {"filesystem": {"write": []}},
        "determinism": "D2",
        "outputs": outputs,
    }


def run(runtime: Runtime, script: str, **outputs: object) -> Result:
    return runtime.execute(contract(runtime, script, **outputs))


@pytest.mark.sandbox
@pytest.mark.req("000-22")
def test_what_is_expected_passes_and_what_differs_does_not(runtime: Runtime) -> None:
    (runtime.settings.root / "input").write_text("three\n")
    script = "echo one; echo two; cat input; echo aside >&2"
    _, golden = runtime.record_golden(contract(runtime, script), **WHO)
    assert golden is not None
    assert (golden.stdout, golden.stderr) == (b"one\ntwo\nthree\n", b"aside\n")
    both = {"stdout": "expected", "stderr": "expected"}
    assert run(runtime, script, **both).ok
    # The same inputs by digest, and yet another output: a file that was not declared has changed.
    (runtime.settings.root / "input").write_text("seven\n")
    result = run(runtime, script, **both)
    assert (result.outcome, result.reason_codes) == (Outcome.OUTPUT_INVALID, ("OUTPUT_INVALID",))
    (violation,) = result.violations
    assert violation.field == "outputs.stdout"
    assert "at byte 8, line 3" in violation.message
    assert run(runtime, script, stderr="expected").ok  # only what is asked for is compared


@pytest.mark.sandbox
@pytest.mark.req("000-23")
def test_stderr_is_compared_like_stdout(runtime: Runtime) -> None:
    (runtime.settings.root / "input").write_text("three\n")
    script = "echo one; cat input >&2"
    runtime.record_golden(contract(runtime, script), **WHO)
    assert run(runtime, script, stderr="expected").ok
    (runtime.settings.root / "input").write_text("4\n")
    result = run(runtime, script, stderr="expected")
    assert (result.outcome, result.reason_codes) == (Outcome.OUTPUT_INVALID, ("OUTPUT_INVALID",))
    (violation,) = result.violations
    assert violation.field == "outputs.stderr"
    assert "at byte 0, line 1" in violation.message
    captured = run(runtime, script, stderr="captured", stdout="expected").check()
    assert captured.result is not None
    assert captured.result.stderr == "4\n"


@pytest.mark.req("000-22")
def test_without_one_nothing_runs(runtime: Runtime) -> None:
    result = run(runtime, "echo never recorded", stdout="expected")
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("GOLDEN_MISSING",))
    assert result.result is None
    assert [
        v.code for v in runtime.check(contract(runtime, "x", stderr="expected")).violations
    ] == ["GOLDEN_MISSING"]


@pytest.mark.sandbox
@pytest.mark.req("000-171")
def test_it_is_changed_by_hand_only_and_never_expires(runtime: Runtime) -> None:
    script = "echo steady"
    _, first = runtime.record_golden(contract(runtime, script), **WHO)
    assert first is not None
    with pytest.raises(Refused) as caught:
        runtime.record_golden(contract(runtime, script), **WHO)
    assert caught.value.code == "GOLDEN_EXISTS"
    run(runtime, script, stdout="expected").check()
    run(runtime, script).check()
    file = runtime.settings.home / "golden" / f"{first.key}.json"
    ago = time.time() - 20 * 365 * 86_400
    os.utime(file, (ago, ago))
    collect(runtime.database, runtime.blobs, age_s=0)
    assert runtime.services.golden.get(first.key) == first
    _, second = runtime.record_golden(contract(runtime, script), by="bob", why="new", replace=True)
    assert second is not None
    assert (second.key, second.by) == (first.key, "bob")
    assert runtime.services.golden.get(first.key) == second


@pytest.mark.sandbox
def test_other_inputs_are_another_one(runtime: Runtime) -> None:
    runtime.record_golden(contract(runtime, "echo a"), **WHO)
    assert run(runtime, "echo a", stdout="expected").ok
    assert run(runtime, "echo  a", stdout="expected").reason_codes == ("GOLDEN_MISSING",)


@pytest.mark.sandbox
def test_what_is_not_the_same_twice_is_not_kept(runtime: Runtime) -> None:
    script = "cut -d' ' -f22 /proc/self/stat; sleep 0.05"
    with pytest.raises(Refused) as caught:
        runtime.record_golden(contract(runtime, script), **WHO)
    assert caught.value.code == "GOLDEN_UNFIT"
    assert run(runtime, script, stdout="expected").reason_codes == ("GOLDEN_MISSING",)


@pytest.mark.sandbox
def test_a_failed_run_is_not_kept(runtime: Runtime) -> None:
    result, golden = runtime.record_golden(contract(runtime, "echo no; exit 3"), **WHO)
    assert golden is None
    assert not result.ok


@pytest.mark.sandbox
def test_an_input_file_that_changes_meanwhile_is_not_recorded(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of a golden output is the digest of what its run has read."""
    file = runtime.settings.root / "declared"
    file.write_text("one\n")
    asked = contract(runtime, "cat declared")
    asked["inputs"] = {**asked["inputs"], "input_files": [str(file)]}  # type: ignore[dict-item]
    _, golden = runtime.record_golden(asked, **WHO)
    assert golden is not None

    def changed_after_the_look(*words: object, **named: object) -> object:
        ready = prepare(*words, **named)  # type: ignore[arg-type]
        file.write_text("three\n")
        return ready

    file.write_text("two\n")
    monkeypatch.setattr("actum.execution.golden_recording.prepare", changed_after_the_look)
    with pytest.raises(Refused) as refused:
        runtime.record_golden(asked, **WHO)
    assert refused.value.code == "GOLDEN_UNFIT"
    assert "changed while the output was recorded" in str(refused.value)
