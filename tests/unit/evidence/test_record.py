"""The evidence record and its fifteen verdicts, each of which a fact can turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from actum.capture.model import Cancelled, DeadlinePassed, LimitKilled, NotCollected, Stream
from actum.contract.call import CheckResult
from actum.contract.model import ArtifactSpec, ExpectedOutputs, Metadata
from actum.contract.outcome import Outcome
from actum.errors import Violation
from actum.evidence.records.checklists import Verdict, checklists
from actum.evidence.records.evidence_record import SUMMARY_BYTES, begun, ended
from actum.evidence.records.facts import ExecutionFacts, Stage

from .factories import (
    CHECKS,
    ENFORCED,
    STARTED,
    House,
    make_capture,
    make_contract,
    make_facts,
    make_file,
    make_intent,
    make_plan,
    make_policy,
    make_refusal,
    make_stream,
)

ITEMS = (
    "Tool is in registry and active",
    "Adapter exists and matches tool version",
    "Inputs validated and sanitized",
    "Sandbox limits set appropriately",
    "Allowlist permits the operation",
    "Evidence capture initialized",
    "Timeout enforced",
    "Resource limits monitored",
    "Output streams captured",
    "Errors logged with context",
    "Exit code interpreted",
    "Outputs collected and validated",
    "Artifacts stored",
    "Evidence captured",
    "Cleanup performed",
)


def verdicts(facts: ExecutionFacts, stored: tuple[str, ...] = ()) -> dict[str, Verdict]:
    lists = checklists(facts, stored, facts.leftovers)
    return {line["item"]: line["verdict"] for list_ in lists.values() for line in list_}


def failed(facts: ExecutionFacts, stored: tuple[str, ...] = ()) -> set[str]:
    return {item for item, verdict in verdicts(facts, stored).items() if verdict is Verdict.FAIL}


@pytest.mark.req("000-188")
def test_every_item_of_the_three_lists_is_recorded_with_a_verdict(house: House) -> None:
    facts = house.execute()
    (record,) = house.records.of_execution(facts.execution_id)
    lists = record["checklists"]
    assert [len(lists[f"{when}_execution"]) for when in ("pre", "during", "post")] == [6, 4, 5]
    entries = [entry for items in lists.values() for entry in items]
    assert {entry["item"] for entry in entries} == set(ITEMS)
    assert {entry["verdict"] for entry in entries} == {"pass"}


def _without(limit: str) -> tuple[Any, ...]:
    return tuple(row for row in ENFORCED if row.limit != limit)


FILE = make_file("report.json", b"{}")
CHANGES: dict[str, dict[str, Any]] = {
    "Adapter exists and matches tool version": {
        "adapter": replace(make_plan(make_contract(), make_policy()).adapter, status="deprecated")
    },
    "Inputs validated and sanitized": {
        "checks": (*CHECKS[:4], replace(CHECKS[4], result=CheckResult.BLOCKED))
    },
    "Sandbox limits set appropriately": {
        "foreseen": (replace(ENFORCED[0], enforced=False), *ENFORCED[1:])
    },
    "Allowlist permits the operation": {
        "checks": (replace(CHECKS[0], result=CheckResult.BLOCKED), *CHECKS[1:])
    },
    "Evidence capture initialized": {"opened": None},
    "Timeout enforced": {"capture": make_capture(enforcement=_without("timeout_ms"))},
    "Resource limits monitored": {"capture": make_capture(enforcement=_without("memory_mb"))},
    "Output streams captured": {
        "capture": make_capture(stdout=Stream(kept=b"part", total_bytes=4, sha256="0" * 64))
    },
    "Errors logged with context": {"events": ()},
    "Outputs collected and validated": {
        "capture": make_capture(
            not_collected=(NotCollected(path="a", kind="output_file", reason="missing"),)
        )
    },
    "Artifacts stored": {"capture": make_capture(collected=(FILE,))},
    "Cleanup performed": {"leftovers": ("cgroup actum/x",)},
}


@pytest.mark.parametrize("item", CHANGES)
def test_each_verdict_falls_with_the_fact_that_proves_it(item: str) -> None:
    assert failed(make_facts(make_intent())) == set()
    assert failed(make_facts(make_intent(), **CHANGES[item])) == {item}


def test_a_late_stop_a_wrong_code_and_silence_about_cleanup_fail_too() -> None:
    late = make_capture(duration_ms=60_000)
    assert failed(make_facts(make_intent(), capture=late)) == {"Timeout enforced"}
    wrong = failed(make_facts(make_intent(), exit_code=1))
    assert wrong == {"Exit code interpreted", "Evidence captured"}
    assert failed(make_facts(make_intent(), leftovers=None)) == {"Cleanup performed"}
    no_peaks = tuple(replace(row, peak=None) for row in ENFORCED)
    blind = make_facts(make_intent(), capture=make_capture(enforcement=no_peaks))
    assert failed(blind) == {"Resource limits monitored"}


def test_a_stored_artifact_and_a_declared_one_that_came_pass() -> None:
    contract = make_contract(
        outputs=ExpectedOutputs(artifacts=(ArtifactSpec(name="report", path="report.json"),))
    )
    facts = make_facts(make_intent(contract), capture=make_capture(collected=(FILE,)))
    assert failed(facts, (FILE.blake3,)) == set()
    missing = make_facts(make_intent(contract))
    assert failed(missing) == {"Outputs collected and validated"}


@pytest.mark.parametrize(
    ("ending", "code", "outcome"),
    [
        (DeadlinePassed(9), 143, Outcome.TIMED_OUT),
        (LimitKilled("memory_mb", "oom_kill 0 -> 1"), 137, Outcome.RESOURCE_KILLED),
        (Cancelled(15), 143, Outcome.CANCELLED),
    ],
)
def test_a_tool_that_was_stopped_is_no_failure_of_ours(
    ending: Any, code: int, outcome: Outcome
) -> None:
    facts = make_facts(
        make_intent(),
        capture=make_capture(ending=ending),
        exit_code=code,
        outcome=outcome,
        reason_codes=("STOPPED",),
    )
    assert failed(facts) == set()


def test_a_refusal_reaches_only_what_came_before_it() -> None:
    at_registry = verdicts(make_refusal())
    assert at_registry["Tool is in registry and active"] is Verdict.FAIL
    assert set(list(at_registry.values())[1:]) == {Verdict.NOT_REACHED}

    full = make_intent()
    at_policy = make_facts(
        replace(full, policy=None, proof=None, plan=None, foreseen=()),
        outcome=Outcome.REJECTED,
        reason_codes=("APPROVAL_REQUIRED",),
        refused_at=Stage.POLICY,
        opened=None,
        capture=None,
    )
    found = verdicts(at_policy)
    passed = {item for item, verdict in found.items() if verdict is Verdict.PASS}
    assert passed == {ITEMS[0], ITEMS[1], ITEMS[2], ITEMS[4]}
    assert failed(at_policy) == {"Sandbox limits set appropriately"}

    blocked = make_facts(
        replace(full, policy=None, proof=None, plan=None, foreseen=(), checks=()),
        outcome=Outcome.REJECTED,
        reason_codes=("IV_01",),
        violations=(Violation(code="IV-01", field="inputs.command", value="x", message="no"),),
        refused_at=Stage.REGISTRY,
        opened=None,
        capture=None,
    )
    assert failed(blocked) == {"Allowlist permits the operation"}


def test_the_effective_limits_are_recorded_before_and_in_the_receipt(house: House) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    (opening,) = house.database.rows("SELECT opening FROM executions")
    assert '"timeout_ms":30000' in opening[0]
    assert '"memory_mb":512' in opening[0]
    house.ledger.seal(make_facts(intent, opened=opened), None)
    (record,) = house.records.of_execution(intent.execution_id)
    limits = next(
        entry
        for entry in record["checklists"]["pre_execution"]
        if entry["item"] == "Sandbox limits set appropriately"
    )
    assert limits["detail"] == "timeout_ms 30000, memory_mb 512, cpu_cores 1, max_children 10"


def test_the_record_holds_command_summaries_references_and_files(house: House) -> None:
    stdout, stderr = make_stream(b"three matches\n" * 1000), make_stream(b"warning: slow\n")
    capture = make_capture(stdout=stdout, stderr=stderr, collected=(FILE,))
    facts = house.execute(capture=capture)
    (record,) = house.records.resolve(f"evidence:{facts.evidence_id}")
    assert record["command"] == {
        "argv": ["rg", "--json", "needle"],
        "executable": "/usr/bin/rg",
        "environment": ["LANG"],
        "working_directory": "/srv/repo",
        "stdin_bytes": 0,
        "secrets": [],
    }
    assert record["exit_code"] == 0
    assert record["output"]["stdout"] == {
        "summary": stdout.kept[:SUMMARY_BYTES].decode(),
        "bytes": 14_000,
        "kept": 14_000,
        "truncated": False,
    }
    assert record["output"]["stderr"]["summary"] == "warning: slow\n"
    assert record["full_output"] == {
        "session": "ses-1",
        "execution_id": facts.execution_id,
        "stdout_sha256": stdout.sha256,
        "stderr_sha256": stderr.sha256,
    }
    assert [(file["path"], file["blake3"]) for file in record["files"]] == [
        ("report.json", FILE.blake3)
    ]
    assert house.blobs.read(record["files"][0]["blake3"]) == FILE.content
    assert (record["diff_summary"], record["tests"]) == (None, None)


def test_an_evidence_ref_resolves_to_the_stored_record_after_the_run(house: House) -> None:
    metadata = Metadata(
        requested_by="agent:test",
        requested_at=STARTED,
        purpose="p",
        evidence_ref="EVD-2031-0001",
    )
    intent = make_intent(make_contract(metadata=metadata))
    opened = house.ledger.write_ahead(intent)
    assert house.records.resolve("EVD-2031-0001") == ()
    house.ledger.seal(make_facts(intent, opened=opened), None)
    (record,) = house.records.resolve("EVD-2031-0001")
    assert record["execution_id"] == intent.execution_id
    assert house.records.resolve(f"evidence:{intent.evidence_id}") == (record,)

    ours = house.execute()
    (record,) = house.records.resolve(ours.evidence_ref)
    assert record["execution_id"] == ours.execution_id
    assert house.records.resolve("evidence:nothing") == ()


def test_a_secret_that_the_summary_would_cut_in_two_is_still_redacted() -> None:
    secret = b"ghp_" + b"S" * 36
    kept = b"x" * (SUMMARY_BYTES - 20) + secret + b"tail"
    facts = make_facts(make_intent(), capture=make_capture(stdout=make_stream(kept)))
    record = ended(facts, (), lambda data: data.replace(secret, b"[redacted]"), facts.leftovers)
    summary = record["output"]["stdout"]["summary"]
    assert "SSSS" not in summary
    assert summary.startswith("x" * 100)


def test_neither_environment_values_nor_stdin_are_in_the_record() -> None:
    contract, policy = make_contract(), make_policy()
    plan = make_plan(contract, policy, environment={"TOKEN": "canary-env"}, stdin=b"canary-stdin")
    facts = make_facts(make_intent(contract, plan=plan))
    record = {**begun(facts), **ended(facts, (), bytes, facts.leftovers)}
    assert "canary" not in str(record)
    assert record["command"]["environment"] == ["TOKEN"]
    assert record["command"]["stdin_bytes"] == len(b"canary-stdin")


def test_output_and_arguments_that_are_no_text_do_not_break_the_record(house: House) -> None:
    contract, policy = make_contract(), make_policy()
    plan = make_plan(contract, policy, argv=("rg", "caf\udce9", "\ud800"))
    intent = make_intent(contract, plan=plan)
    opened = house.ledger.write_ahead(intent)
    capture = make_capture(stdout=make_stream(b"\xff\xfe\x00"))
    house.ledger.seal(make_facts(intent, opened=opened, capture=capture), None)
    (record,) = house.records.of_execution(contract.execution_id)
    assert tuple(record["command"]["argv"]) == plan.argv
    assert all(finding.passed for finding in house.verifier.verify_all())
