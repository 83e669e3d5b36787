"""Work items as documents, the admission rules at their boundaries, and counted tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actum.errors import ContractInvalid
from actum.work.admission import (
    Admission,
    Artifact,
    Resource,
    RunCapsule,
    ToolOp,
    check_admission,
    make_capsule,
    run_hash,
)
from actum.work.counting import count_tests
from actum.work.model import Constraints, Metrics, RunResult, Status, WorkItem
from actum.workspace.tree import Change, Entry, Kind, content_digest

MINIMAL = {"id": "w", "agent_id": "agent-1", "description": "do it"}


@pytest.mark.req("002-9", "002-10")
def test_constraints_are_always_there_and_each_has_its_own_default() -> None:
    assert WorkItem.parse(MINIMAL).constraints == Constraints(
        max_files=10, max_tool_ops=50, max_delta_size=100, timeout_ms=300_000
    )
    given_ = WorkItem.parse({**MINIMAL, "constraints": {"max_files": 1}}).constraints
    assert given_ == Constraints(max_files=1)
    assert given_.timeout_ms == 300_000


def test_every_field_is_read_and_written_again() -> None:
    document = {
        **MINIMAL,
        "dependencies": ["a", "b"],
        "constraints": {
            "max_files": 5,
            "max_tool_ops": 20,
            "max_delta_size": 50,
            "timeout_ms": 60_000,
        },
        "budget": {"time_estimate_ms": 30_000, "complexity": "medium"},
        "input_files": ["in"],
        "output_files": ["/out"],
        "test_command": "true",
    }
    assert WorkItem.parse(document).document() == document
    at_once = {**document, "budget": {"time_estimate_ms": 0}}
    assert WorkItem.parse(at_once).document() == at_once
    assert WorkItem.parse("id: w\nagent_id: agent-1\ndescription: do it\n") == WorkItem.parse(
        MINIMAL
    )


@pytest.mark.req("002-3")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent_id", "agent-10"),
        ("agent_id", "agent-x"),
        ("agent_id", "agent-1\n"),
        ("id", ""),
        ("id", 7),
        ("description", ""),
        ("description", 7),
        ("dependencies", "a"),
        ("dependencies", [1]),
        ("dependencies", ["a", "a"]),
        ("constraints", {"max_files": -1}),
        ("constraints", {"max_files": 1.0}),
        ("constraints", {"max_file": 1}),
        ("constraints", {"timeout_ms": 0}),
        ("budget", {"complexity": "extreme"}),
        ("budget", {"complexity": ["medium"]}),
        ("budget", {"time_estimate_ms": "soon"}),
        ("nonsense", 1),
        ("test_command", ""),
    ],
)
def test_what_is_malformed_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ContractInvalid) as refusal:
        WorkItem.parse({**MINIMAL, field: value})
    assert any(field in str(problem) for problem in refusal.value.problems)


@pytest.mark.req("002-3")
@pytest.mark.parametrize("number", range(10))
def test_agents_0_to_9_are_accepted(number: int) -> None:
    assert WorkItem.parse({**MINIMAL, "agent_id": f"agent-{number}"}).agent_id.endswith(str(number))


@pytest.mark.req("002-16")
def test_a_result_is_written_in_the_contracts_shape() -> None:
    result = RunResult(
        status=Status.DENIED,
        receipt_id="r",
        receipt_path="/r/RECEIPT.json",
        output_hash="0" * 64,
        artifact_hashes={},
        metrics=Metrics(tool_ops_count=1),
        denial_reason="Exceeded max files: 2 > 1",
    )
    document = result.document()
    assert document["status"] == "denied"
    assert "error" not in document
    assert document["metrics"] == {
        "execution_time_ms": 0,
        "tool_ops_count": 1,
        "delta_size": 0,
        "files_touched": 0,
    }
    assert RunResult.read(document) == result
    assert {status.value for status in Status} == {"success", "failure", "denied", "timeout"}


def _capsule(*, files: int = 0, ops: int = 0, deltas: tuple[int, ...] = (0, 0, 0, 0)) -> RunCapsule:
    def some(count: int, word: str) -> tuple[Resource, ...]:
        return tuple(
            Resource(action="created", target=f"{word}{n}", before=None, after="x")
            for n in range(count)
        )

    return RunCapsule(
        artifacts=tuple(Artifact(type="create", path=f"f{n}") for n in range(files)),
        tool_trace=(ToolOp(tool_id="TL-010", input_digest="d", outcome="SUCCEEDED"),) * ops,
        delta_o=some(deltas[0], "o"),
        delta_pi=some(deltas[1], "p"),
        delta_lambda=some(deltas[2], "l"),
        delta_q=some(deltas[3], "q"),
    )


@pytest.mark.req("002-51", "002-55", "002-56", "002-61")
def test_equal_to_a_limit_is_let_in_and_one_more_is_not() -> None:
    limits = Constraints(max_files=3, max_tool_ops=2, max_delta_size=5)
    assert check_admission(_capsule(files=3, ops=2, deltas=(2, 1, 1, 1)), limits) == _OK
    denied = check_admission(_capsule(files=4), limits)
    assert denied == Admission(ok=False, reason="Exceeded max files: 4 > 3")
    assert check_admission(_capsule(ops=3), limits).reason == "Exceeded max tool ops: 3 > 2"
    for at in range(4):
        deltas = tuple(6 if at == n else 0 for n in range(4))
        refusal = check_admission(_capsule(deltas=deltas), limits)
        assert refusal.reason == "Exceeded max delta size: 6 > 5"
    spread = check_admission(_capsule(deltas=(2, 2, 1, 1)), limits)
    assert (spread.ok, spread.reason) == (False, "Exceeded max delta size: 6 > 5")


_OK = Admission(ok=True, reason=None)


@pytest.mark.req("002-53")
def test_one_path_twice_is_one_file_and_no_path_is_none() -> None:
    twice = RunCapsule(
        artifacts=(
            Artifact(type="create", path="a"),
            Artifact(type="edit", path="a"),
            Artifact(type="command"),
        )
    )
    assert check_admission(twice, Constraints(max_files=1)) == _OK
    assert not check_admission(twice, Constraints(max_files=0)).ok


def test_the_first_broken_rule_gives_the_reason() -> None:
    limits = Constraints(max_files=0, max_tool_ops=0, max_delta_size=0)
    everything = _capsule(files=1, ops=1, deltas=(1, 0, 0, 0))
    history = frozenset({"h"})
    reasons = [
        check_admission(everything, replace(limits, **allowed), history, "h").reason
        for allowed in ({}, {"max_files": 1}, {"max_files": 1, "max_tool_ops": 1})
    ]
    wide = Constraints()
    reasons.append(check_admission(everything, wide, history, "h").reason)
    assert [str(reason).split(":")[0] for reason in reasons] == [
        "Exceeded max files",
        "Exceeded max tool ops",
        "Exceeded max delta size",
        "Duplicate run (already in history)",
    ]
    assert check_admission(everything, wide, history, "other") == _OK


def _file(path: str, before: bytes | None, after: bytes | None) -> Change:
    def entry(content: bytes | None) -> Entry | None:
        return None if content is None else Entry(Kind.FILE, 0o644, content_digest(content))

    return Change(path.encode(), entry(before), entry(after))


@pytest.mark.req("002-26", "002-27")
def test_each_changed_resource_counts_once_in_one_class() -> None:
    folder = Entry(Kind.FOLDER, 0o755, b"")
    delta = (
        _file("actum.toml", b"1", b"2"),
        Change(b"empty", None, folder),
        _file("out.txt", None, b"1"),
        Change(b"src", None, folder),
        _file("src/a.py", None, b"1"),
        _file("tests/test_a.py", b"1", None),
    )
    capsule = make_capsule(delta, (), {"out.txt"})
    told = {
        name: [resource.target for resource in getattr(capsule, name)]
        for name in ("delta_o", "delta_pi", "delta_lambda", "delta_q")
    }
    assert told == {
        "delta_o": ["empty", "src/a.py"],
        "delta_pi": ["out.txt"],
        "delta_lambda": ["actum.toml"],
        "delta_q": ["tests/test_a.py"],
    }
    assert capsule.delta_size == 5
    assert capsule.files == {"actum.toml", "out.txt", "src/a.py", "tests/test_a.py"}


@pytest.mark.req("002-59")
def test_the_history_hash_knows_no_ids_and_no_times() -> None:
    item = WorkItem.parse({**MINIMAL, "test_command": "true"})
    capsule = make_capsule(
        (_file("a", None, b"1"),),
        (ToolOp(tool_id="T", input_digest="d", outcome="SUCCEEDED", execution_id="1"),),
        (),
    )
    again = replace(
        capsule,
        tool_trace=(
            replace(capsule.tool_trace[0], execution_id="2", receipt_id="r", duration_ms=9),
        ),
    )
    first = run_hash(item, "agent", "before", capsule)
    assert run_hash(replace(item, id="other"), "agent", "before", again) == first
    others = {
        run_hash(replace(item, description="else"), "agent", "before", capsule),
        run_hash(item, "another agent", "before", capsule),
        run_hash(item, "agent", "elsewhere", capsule),
        run_hash(item, "agent", "before", make_capsule((), (), ())),
    }
    assert len(others) == 4
    assert first not in others


@pytest.mark.req("002-28", "002-29")
@pytest.mark.parametrize(
    ("output", "counted"),
    [
        ("..F\n==== 1 failed, 2 passed, 1 skipped in 0.12s ====\n", (2, 1)),
        ("5 passed in 61.00s (0:01:01)\n", (5, 0)),
        ("= 1 error in 0.1s =", (0, 1)),
        ("# tests 3\n# suites 0\n# pass 2\n# fail 1\n# cancelled 0\n", (2, 1)),
        ("ℹ tests 1\nℹ pass 1\nℹ fail 0\n", (1, 0)),
        (
            (
                "test result: ok. 3 passed; 0 failed; 0 ignored\n"
                "test result: FAILED. 1 passed; 2 failed; 0 ignored\n"
            ),
            (4, 2),
        ),
        ("=== RUN   TestA\n--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\n", (1, 1)),
        ("ok\n", None),
        ("I saw 3 passed cars in 4.0s of film", None),
        ("", None),
    ],
)
def test_counts_of_known_runners(output: str, counted: tuple[int, int] | None) -> None:
    assert count_tests(output) == counted
