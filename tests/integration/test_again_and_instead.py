"""Programs: what is tried again, what another adapter does instead, and what the record says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum import Outcome, Result, Runtime
from actum.contract.model import RunnerKind
from actum.evidence.traces import Traces
from actum.execution.retry_clock import RetryClock
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.value import replace

pytestmark = pytest.mark.sandbox

#: Counts its runs in a file of the working directory and ends as its argument for that run says.
COUNT = """
n=$(cat runs 2>/dev/null || echo 0); n=$((n + 1)); echo $n >runs
shift $((n - 1)) 2>/dev/null || shift $(($# - 1))
echo run $n; exit $1
"""


class House:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        create(self.root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
        self.work = self.root / "work"
        self.work.mkdir(mode=0o755)
        self.runtime = Runtime.open(self.root)
        self.waited: list[float] = []
        retry_clock = RetryClock(
            lambda: sum(self.waited), lambda s, _: self.waited.append(s) is None
        )
        self.runtime.services = replace(self.runtime.services, retry_clock=retry_clock)

    def adapt(
        self,
        *,
        retry: dict[str, Any] | None = None,
        fallback: dict[str, Any] | None = None,
        idempotent: bool = True,
        executable: str = "sh",
        others: tuple[dict[str, Any], ...] = (),
    ) -> None:
        """Change the shell's adapter, add others, and have it all approved."""
        folder = self.root / "tools/shell"
        (file,) = (folder / "adapters").glob("shell-script.yaml")
        adapter = yaml.safe_load(file.read_text())
        adapter["errors"] = {
            "retry": retry or {"max_attempts": 1, "backoff_ms": 0, "retryable_codes": []},
            "fallback": fallback,
        }
        adapter["interface"]["cli"]["executable"] = executable
        file.write_text(yaml.safe_dump(adapter))
        for other in others:
            made = json.loads(json.dumps(adapter)) | {"adapter_id": other["adapter_id"]}
            made["name"] = other["adapter_id"].lower()
            made["errors"]["fallback"] = other.get("fallback")
            made["interface"]["cli"] |= other["cli"]
            made["transforms"] = other.get("transforms", made["transforms"])
            made["metadata"]["status"] = "experimental"
            (folder / "adapters" / f"{other['adapter_id']}.yaml").write_text(yaml.safe_dump(made))
        tool = yaml.safe_load((folder / "tool.yaml").read_text())
        tool["scope"]["network"] = "off"
        tool["scope"]["commands"] = ["sh", "bash", "absent-shell"]
        if idempotent:
            tool["operations"] = {"sh": {"idempotent": True}}
        (folder / "tool.yaml").write_text(yaml.safe_dump(tool))
        keyring = self.runtime.keyring
        approve(self.root, keyring, "shell", by="user:maker", evidence="test", date="2026-11-15")

    def run(self, script: str, *arguments: str, **words: Any) -> Result:
        words.setdefault("adapter_id", "ADP-011")
        return self.runtime.exec("shell", *arguments, stdin=script.encode(), cwd=self.work, **words)

    def events(self, result: Result) -> list[tuple[int, str]]:
        kept = Traces(self.runtime.database).of_execution(result.execution_id)
        return [(event["attempt"], event["event_type"]) for event in kept]

    def audit(self, result: Result) -> list[tuple[str, int]]:
        return [
            (record["kind"], record["attempt"])
            for record in self.records()
            if record.get("execution_id") == result.execution_id
        ]

    def records(self) -> list[dict[str, Any]]:
        rows = self.runtime.database.rows("SELECT record FROM audit ORDER BY seq")
        return [json.loads(row[0]) for row in rows]

    def broken(self) -> list[object]:
        """What `actum verify --all` would object to."""
        findings = self.runtime.verifier.verify_all()
        assert findings
        return [finding for finding in findings if not finding.passed]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.runtime.close()


RETRY = {"max_attempts": 3, "backoff_ms": 250, "retryable_codes": [75]}
BASH = {"adapter_id": "ADP-B", "cli": {"executable": "bash"}}
WHICH = 'echo "${BASH_VERSION:+bash}"; exit '


@pytest.mark.req("000-114", "000-115", "000-116")
def test_a_listed_code_is_tried_again_until_it_is_another(house: House) -> None:
    house.adapt(retry=RETRY)
    result = house.run(COUNT, "75", "75", "0")
    assert (result.outcome, result.attempts, house.waited) == (Outcome.SUCCEEDED, 3, [0.25, 0.5])
    assert result.result is not None
    assert result.result.stdout == "run 3\n"
    (house.work / "runs").unlink()
    result = house.run(COUNT, "75", "74", "0")
    assert (result.outcome, result.attempts) == (Outcome.TOOL_ERROR, 2)
    assert result.history[-1].why == "code 74 is not retryable"


@pytest.mark.req("000-114")
def test_every_attempt_has_its_own_events_and_record_and_all_is_verified(house: House) -> None:
    house.adapt(retry=RETRY)
    result = house.run(COUNT, "75", "75", "75", "0")
    assert (result.outcome, result.attempts) == (Outcome.TOOL_ERROR, 3)
    names = [f"tool_run_{name}" for name in ("start", "resource_applied", "output_captured", "end")]
    assert house.events(result) == [
        (attempt, name) for attempt in (1, 2, 3) for name in (*names, "error")
    ]
    assert house.audit(result) == [
        ("DECISION", 1),
        ("PENDING", 1),
        ("PENDING", 2),
        ("PENDING", 3),
        ("FINAL", 3),
    ]
    proofs = [attempt.proof_sha256 for attempt in result.history]
    assert len(proofs) == 3
    assert house.broken() == []


@pytest.mark.req("000-151")
def test_without_codes_no_code_is_tried_again(house: House) -> None:
    house.adapt(retry={"max_attempts": 2, "backoff_ms": 500, "retryable_codes": []})
    result = house.run(COUNT, "1", "0")
    assert (result.attempts, house.waited) == (1, [])


def test_what_is_not_declared_idempotent_is_tried_once(house: House) -> None:
    house.adapt(retry=RETRY, idempotent=False)
    result = house.run(COUNT, "75", "0")
    assert (result.outcome, result.attempts) == (Outcome.TOOL_ERROR, 1)
    assert result.history[0].why == "sh is not declared idempotent and carries no key"


@pytest.mark.req("000-135")
def test_one_attempt_is_one_attempt(house: House) -> None:
    house.adapt(retry={"max_attempts": 1, "backoff_ms": 0, "retryable_codes": [75]})
    result = house.run(COUNT, "75", "0")
    assert (result.attempts, result.history, result.fallback) == (1, (), None)


@pytest.mark.parametrize("end", ["kill -9 $$", "sleep 60", "x=xxxxxxxx; while :; do x=$x$x; done"])
def test_a_signal_a_timeout_and_a_limit_are_never_tried_again(house: House, end: str) -> None:
    codes = [137, 143]
    house.adapt(retry={"max_attempts": 3, "backoff_ms": 0, "retryable_codes": codes})
    result = house.run(end, set={"sandbox.timeout_ms": 1000, "sandbox.memory_mb": 64})
    assert (result.outcome is not Outcome.SUCCEEDED, result.attempts) == (True, 1)


@pytest.mark.req("000-33")
def test_the_time_of_all_attempts_is_the_time_of_one(house: House) -> None:
    house.adapt(retry={"max_attempts": 3, "backoff_ms": 700, "retryable_codes": [75]})
    result = house.run(COUNT, "75", "75", "0", set={"sandbox.timeout_ms": 1000})
    assert (result.attempts, house.waited) == (2, [0.7])
    assert result.history[-1].why == "no time left"
    (row,) = [row for row in result.enforcement if row.limit == "timeout_ms"]
    assert int(row.requested.split()[0]) <= 300


@pytest.mark.req("000-117", "000-118")
@pytest.mark.parametrize(
    ("condition", "script", "falls"),
    [
        ("on_error", WHICH + "3", True),
        ("on_error", WHICH + "127", True),
        ("on_error", WHICH + "0", False),
        ("on_error", "kill -9 $$", True),
        ("on_not_found", WHICH + "127", True),
        ("on_not_found", WHICH + "3", False),
        ("exit_code:3", WHICH + "3", True),
        ("exit_code:3", WHICH + "4", False),
        ("on_timeout", '[ -n "$BASH_VERSION" ] || sleep 60; echo bash', True),
        ("on_timeout", WHICH + "143", False),
        ("on_error", "sleep 60", False),
    ],
)
def test_the_other_adapter_runs_exactly_when_the_condition_holds(
    house: House, condition: str, script: str, falls: bool
) -> None:
    house.adapt(fallback={"adapter_id": "ADP-B", "condition": condition}, others=(BASH,))
    result = house.run(script, set={"sandbox.timeout_ms": 1000})
    assert result.attempts == (2 if falls else 1)
    assert (result.fallback is not None) is falls
    assert result.adapter_id == ("ADP-B" if falls else "ADP-011")
    if result.fallback is not None:
        assert (result.fallback.adapter_id, result.fallback.condition) == ("ADP-B", condition)
        assert [attempt.adapter_id for attempt in result.history] == ["ADP-011", "ADP-B"]
        if "kill" not in script:
            assert result.result is not None
            assert "bash" in result.result.stdout


@pytest.mark.req("000-118")
def test_it_falls_back_once_and_no_further(house: House) -> None:
    fallback = {"adapter_id": "ADP-B", "condition": "on_error"}
    back = {"adapter_id": "ADP-011", "condition": "on_error"}
    house.adapt(retry=RETRY, fallback=fallback, others=(BASH | {"fallback": back},))
    result = house.run(COUNT, "75", "75", "75", "75", "0")
    assert (result.outcome, result.attempts) == (Outcome.TOOL_ERROR, 4)
    assert [attempt.adapter_id for attempt in result.history] == ["ADP-011"] * 3 + ["ADP-B"]
    assert house.broken() == []


@pytest.mark.req("000-117")
def test_no_fallback_is_no_fallback(house: House) -> None:
    house.adapt(fallback=None, others=(BASH,))
    result = house.run("exit 3")
    assert (result.attempts, result.fallback) == (1, None)


@pytest.mark.req("000-118")
def test_the_other_adapter_passes_every_check_again(house: House) -> None:
    """It runs a program that the allowlist of the tool does not have."""
    other = {"adapter_id": "ADP-B", "cli": {"executable": "dash"}}
    house.adapt(fallback={"adapter_id": "ADP-B", "condition": "on_error"}, others=(other,))
    result = house.run("echo kept; exit 3")
    assert (result.outcome, result.attempts, result.adapter_id) == (
        Outcome.TOOL_ERROR,
        1,
        "ADP-011",
    )
    assert result.fallback is not None
    assert result.fallback.refused == ("IV-01",)
    assert result.result is not None
    assert (result.result.stdout, result.result.exit_code) == ("kept\n", 3)
    assert house.audit(result)[-1] == ("FINAL", 1)
    assert house.broken() == []


def test_a_program_that_is_not_installed_is_not_found(house: House) -> None:
    house.adapt(
        fallback={"adapter_id": "ADP-B", "condition": "on_not_found"},
        executable="absent-shell",
        others=(BASH,),
    )
    result = house.run(WHICH + "0")
    assert (result.outcome, result.attempts, result.adapter_id) == (Outcome.SUCCEEDED, 1, "ADP-B")
    assert result.fallback is not None


def test_without_a_fallback_it_is_refused(house: House) -> None:
    house.adapt(executable="absent-shell")
    result = house.run("true")
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("EXECUTABLE_MISSING",))


def test_output_that_is_not_as_declared_is_an_error_too(house: House) -> None:
    parse = {"input": [], "output": [{"type": "parse", "spec": "json"}]}
    other = BASH | {"transforms": parse}
    fallback = {"adapter_id": "ADP-C", "condition": "on_error"}
    plain = {"adapter_id": "ADP-C", "cli": {"executable": "sh"}}
    house.adapt(others=(other | {"fallback": fallback}, plain))
    result = house.run("echo not json", adapter_id="ADP-B")
    assert (result.outcome, result.attempts) == (Outcome.SUCCEEDED, 2)
    assert [attempt.outcome for attempt in result.history] == ["OUTPUT_INVALID", "SUCCEEDED"]


def test_asked_again_the_record_tells_the_same(house: House) -> None:
    house.adapt(retry=RETRY)
    first = house.run(COUNT, "75", "0", set={"execution_id": "an-id-of-mine"})
    again = house.run(COUNT, "75", "0", set={"execution_id": "an-id-of-mine"})
    assert again.replayed
    assert (again.history, again.attempts) == (first.history, 2)
    assert (house.work / "runs").read_text() == "2\n"


def test_an_undo_takes_back_the_changes_of_every_attempt(house: House) -> None:
    house.adapt(retry=RETRY)
    result = house.run(COUNT, "75", "0")
    assert (house.work / "runs").read_text() == "2\n"
    attempts = house.runtime.transactions.attempts(result.execution_id)
    assert [kept.state for kept in attempts] == ["committed", "committed"]
    command = [sys.executable, "-m", "actum.doors.cli.main", "undo", result.execution_id]
    undone = subprocess.run(command, cwd=house.root, capture_output=True, text=True, check=True)
    assert undone.stdout == f"Undone: {result.execution_id}, 1 path is as before.\n"
    assert not (house.work / "runs").exists()


_KILLED = """
import sys
from actum import Runtime
with Runtime.open(sys.argv[1]) as rt:
    script = '[ -e one ] || { touch one; exit 75; }; echo two; sleep 60'
    hear = lambda _stream, chunk: print(chunk.decode(), end="", flush=True)
    named = {"execution_id": "killed-in-the-second"}
    rt.exec("shell", stdin=script, cwd=sys.argv[2], set=named, on_output=hear)
"""


def test_killed_in_its_second_attempt_it_is_closed_and_never_repeated(house: House) -> None:
    house.adapt(retry=RETRY)
    house.runtime.close()
    command = [sys.executable, "-c", _KILLED, str(house.root), str(house.work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "two\n"
        finally:
            process.kill()
    house.runtime = Runtime.open(house.root)
    known = house.runtime.services.executions.get("killed-in-the-second")
    assert known is not None
    assert known.outcome is Outcome.EXCEPTION
    again = house.run("true", set={"execution_id": "killed-in-the-second"})
    assert again.outcome is Outcome.REJECTED
    assert house.broken() == []
    pending = [
        (record["kind"], record["attempt"])
        for record in house.records()
        if record.get("execution_id") == "killed-in-the-second"
    ]
    assert pending[:3] == [("DECISION", 1), ("PENDING", 1), ("PENDING", 2)]
    assert ("FINAL", 2) in pending
