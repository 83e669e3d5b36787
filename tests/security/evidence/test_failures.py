"""When the store cannot hold a record, nothing runs; what it held before is still there."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from evidence.factories import RESULT, House, bad, make_facts, make_intent

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.errors import EvidenceUnavailable
from actum.project import create
from common.journals import read_only

UNIT = str(Path(__file__).resolve().parents[2] / "unit")
_ACTUM = (sys.executable, "-m", "actum.doors.cli.main")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:test", date="2031-01-01")
    return root


def records(runtime: Runtime) -> list[dict[str, object]]:
    rows = runtime.database.rows("SELECT record FROM audit ORDER BY seq")
    return [json.loads(row[0]) for row in rows]


def findings(runtime: Runtime) -> list[tuple[str, str]]:
    return bad(runtime.verifier.verify_all())


@pytest.mark.sandbox
@pytest.mark.req("000-2")
def test_one_id_runs_once_and_the_same_request_gets_the_recorded_answer(project: Path) -> None:
    execution_id = str(uuid.uuid4())
    ask = {"execution_id": execution_id}
    with Runtime.open(project, session="named") as runtime:
        first = runtime.exec("shell", stdin="date +%N", cwd=project, set=ask)
        again = runtime.exec("shell", stdin="date +%N", cwd=project, set=ask)
        assert first.result is not None
        assert again.result is not None
        assert (first.replayed, again.replayed) == (False, True)
        assert again.result.stdout == first.result.stdout != ""
        assert again.receipt_id == first.receipt_id
        other = runtime.exec("shell", stdin="echo other", cwd=project, set=ask)
        assert (other.outcome, other.reason_codes) == ("REJECTED", ("EXECUTION_ID_REUSED",))
    with Runtime.open(project) as runtime:  # in another session, and in another process's life
        later = runtime.exec("shell", stdin="date +%N", cwd=project, set=ask)
        assert later.replayed
        assert later.receipt_id == first.receipt_id
        started = [each for each in records(runtime) if each["kind"] == "PENDING"]
        assert [each["execution_id"] for each in started] == [execution_id]
        assert findings(runtime) == []


_RACER = """
import sys
from actum import Runtime
from actum.errors import Refused
with Runtime.open(sys.argv[1]) as runtime:
    for number in range(5):
        runtime.exec("shell", stdin="echo $$", cwd=sys.argv[1])
    try:
        result = runtime.exec("shell", stdin="sleep 0.2; date +%N", cwd=sys.argv[1],
                              set={"execution_id": sys.argv[2]})
    except Refused as refusal:  # it is running at this very moment
        print(refusal.code)
    else:
        print(result.outcome, ",".join(result.reason_codes), result.replayed)
"""


@pytest.mark.sandbox
@pytest.mark.req("000-2")
def test_two_processes_on_one_home_lose_nothing_and_run_one_id_once(project: Path) -> None:
    execution_id = str(uuid.uuid4())
    command = [sys.executable, "-c", _RACER, str(project), execution_id]
    racers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = [racer.communicate() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], ended
    with Runtime.open(project) as runtime:
        started = [each["execution_id"] for each in records(runtime) if each["kind"] == "PENDING"]
        assert started.count(execution_id) == 1
        assert len(started) == 11
        assert findings(runtime) == []
    assert any("SUCCEEDED" in out for out, _ in ended)


def test_a_damaged_database_stops_everything_and_says_what_to_do(project: Path) -> None:
    with Runtime.open(project) as runtime:
        runtime.services.ledger.malformed(b"", datetime.now(UTC))
    path = project / ".actum" / "actum.db"
    whole = path.read_bytes()
    path.write_bytes(b"\x00" * 100 + whole[100:])
    with pytest.raises(EvidenceUnavailable, match=r"actum\.db is damaged.*backup"):
        Runtime.open(project)
    path.write_bytes(whole)  # nothing was made worse meanwhile
    with Runtime.open(project) as runtime:
        assert len(records(runtime)) == 1
        assert findings(runtime) == []


@pytest.mark.parametrize("page", [2, 3, 5])
def test_a_damaged_page_is_reported_by_verify_and_not_raised(house: House, page: int) -> None:
    for _ in range(3):
        house.execute()
    house.database.close()
    path = house.home / "actum.db"
    raw = bytearray(path.read_bytes())
    raw[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(raw)
    reopened = House.open(house.home)
    assert any(subject == "database" for subject, _ in bad(reopened.verifier.verify_all()))
    reopened.database.close()


_FULL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from evidence.factories import *
from actum.errors import EvidenceUnavailable
home = Path(sys.argv[2]) / ".actum"
house = House.open(home)
sealed, refusal = [], None

for number in range(200):
    try:
        intent = make_intent()
        opened = house.ledger.write_ahead(intent)
    except EvidenceUnavailable as error:
        refusal = error
        break
    try:
        content = number.to_bytes(4, "big") * 50_000
        file = make_file(f"{number}.bin", content)
        capture = make_capture(collected=(file,))
        house.ledger.seal(make_facts(intent, opened=opened, capture=capture), RESULT)
        sealed.append(intent.execution_id)
    except EvidenceUnavailable as error:
        refusal = error
        break
assert refusal is not None, "the disk never filled up"
print(refusal.code, refusal)
(Path(sys.argv[2]) / "reserve").unlink()      # someone makes room
again = House.open(home)
known = [again.executions.get(each) for each in sealed]
assert all(each is not None and each.outcome is not None for each in known)
assert len(again.receipts.latest(1000)) == len(sealed)
left = again.executions.open_executions()
assert len(left) <= 1
for each in left:
    assert again.executions.get(each.execution_id).outcome is None   # open, and listed as such
assert bad(again.verifier.verify_all()) == []
again.execute()
assert bad(again.verifier.verify_all()) == []
print("sealed", len(sealed))
"""


def test_on_a_full_disk_nothing_starts_and_nothing_recorded_is_lost(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    program = tmp_path / "full.py"
    program.write_text(_FULL)
    script = (
        'mount -t tmpfs -o size=6m none "$1" && head -c 2000000 /dev/zero > "$1/reserve"'
        ' && exec "$2" "$3" "$4" "$1"'
    )
    ended = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount"),
            *("sh", "-c", script, "sh", str(mount), sys.executable, str(program), UNIT),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "AUDIT_LOG_FAILED" in ended.stdout
    assert "Free space" in ended.stdout
    assert "sealed " in ended.stdout


_READ_ONLY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from evidence.factories import *
from actum.errors import ActumError
home = Path(sys.argv[2])
try:
    house = House.open(home)
    house.ledger.write_ahead(make_intent())
except ActumError as error:
    print(error.code, error)
else:
    sys.exit("it was let through")
"""


def test_a_home_that_cannot_be_written_lets_nothing_start(house: House, tmp_path: Path) -> None:
    facts = house.execute()
    house.database.close()
    program = tmp_path / "read_only.py"
    program.write_text(_READ_ONLY)
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" "$3" "$4" "$1"'
    ended = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount"),
            *("sh", "-c", script, "sh", str(house.home), sys.executable, str(program), UNIT),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "AUDIT_LOG_FAILED" in ended.stdout
    assert "Check its owner" in ended.stdout or "write access" in ended.stdout
    again = House.open(house.home)
    assert again.executions.get(facts.execution_id) is not None
    assert bad(again.verifier.verify_all()) == []
    again.database.close()


@pytest.mark.sandbox
def test_a_clock_that_jumps_back_changes_no_order_and_breaks_no_proof(project: Path) -> None:
    with Runtime.open(project) as runtime:
        settings = runtime.settings
    moments = iter(datetime(2031, 1, 1, tzinfo=UTC) - timedelta(days=each) for each in range(999))
    with Runtime(settings, clock=lambda: next(moments)) as runtime:
        ran = [runtime.exec("shell", stdin=f"echo {each}", cwd=project) for each in range(3)]
        assert [each.outcome for each in ran] == ["SUCCEEDED"] * 3
        newest_first = [kept.receipt_id for kept in runtime.services.receipts.latest(3)]
        assert newest_first == [each.receipt_id for each in reversed(ran)]
        assert all(each.result and each.result.duration_ms >= 0 for each in ran)
        assert findings(runtime) == []
        stamps = [str(each["ts"]) for each in records(runtime)]
        assert stamps != sorted(stamps)  # the clock did go back, and the log kept its order


def test_a_seal_that_fails_leaves_the_execution_open_and_the_next_start_closes_it(
    house: House,
) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    with read_only(house.database), pytest.raises(EvidenceUnavailable):
        house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    (left,) = house.executions.open_executions()
    assert left.execution_id == intent.execution_id
    house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    assert bad(house.verifier.verify_all()) == []


@pytest.mark.sandbox
@pytest.mark.req("000-178")
def test_without_a_record_of_the_start_the_tool_does_not_start(project: Path) -> None:
    made = project / "made.txt"
    declared = {"outputs.output_files": ["made.txt"]}
    with Runtime.open(project) as runtime:
        with read_only(runtime.database), pytest.raises(EvidenceUnavailable):
            runtime.exec("shell", stdin="echo x > made.txt", cwd=project, set=declared)
        assert not made.exists()
        assert records(runtime) == []
        ran = runtime.exec("shell", stdin="echo x > made.txt", cwd=project, set=declared)
        assert ran.outcome == "SUCCEEDED"
        assert made.exists()


@pytest.mark.sandbox
@pytest.mark.req("000-185")
@pytest.mark.parametrize("size", [10, 300_000])
def test_collected_files_outlive_their_session_and_are_found_by_reference(
    project: Path, size: int
) -> None:
    script = f"head -c {size} /dev/urandom | tee $ACTUM_ARTIFACTS/made | sha256sum"
    with Runtime.open(project) as runtime:
        ran = runtime.exec(
            "shell",
            stdin=script,
            cwd=project,
            set={"outputs.artifacts": ["made"], "metadata.evidence_ref": "ticket-7"},
        )
        assert ran.result is not None
        digest = ran.result.stdout.split()[0]
    with Runtime.open(project) as runtime:
        assert runtime.services.sessions.get(ran.session, ran.execution_id) is None
        found = runtime.evidence("ticket-7").read("made")
        assert hashlib.sha256(found).hexdigest() == digest


@pytest.mark.sandbox
@pytest.mark.parametrize("as_json", [False, True])
def test_a_receipt_file_that_cannot_be_written_does_not_hide_what_the_tool_did(
    project: Path, as_json: bool
) -> None:
    command = [*_ACTUM, *(["--json"] if as_json else []), "exec", "shell"]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, input="echo hello", cwd=project, capture_output=True, text=True, check=False
        )

    assert "cannot be written" not in run().stderr
    folder = project / ".actum" / "receipts"
    folder.rename(project / ".actum" / "receipts-before")
    folder.write_text("in the way")
    done = run()
    assert done.returncode == 0
    assert "receipt cannot be written" in done.stderr
    if as_json:
        document = json.loads(done.stdout)
        assert document["result"]["stdout"] == "hello\n"
        assert document["receipt_path"] == ""
        receipt_id = document["receipt_id"]
    else:
        assert done.stdout == "hello\n"
        receipt_id = done.stderr.split("receipt ")[-1].split()[0].strip(",.")
    shown = subprocess.run(
        [*_ACTUM, "verify", receipt_id],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
