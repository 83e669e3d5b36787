"""Level D2: clock, random bytes, file times and addresses repeat; a second run is compared."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from actum import ActumError, Result, Runtime, native
from actum.contract.model import RunnerKind
from actum.evidence.traces import Traces
from actum.policy.environment import FIXED_EPOCH
from actum.project import create
from actum.registry.approval_workflow import approve

#: Everything that varies from run to run at D0, as far as a program can see it.
PROBE = """
import datetime, json, os, random, tempfile, time, uuid
there = os.path.join(tempfile.mkdtemp(), "new")
open(there, "w").close()
print(json.dumps({
    "time": time.time(), "now": str(datetime.datetime.now()), "zone": time.tzname[0],
    "urandom": os.urandom(8).hex(), "random": random.random(), "uuid4": str(uuid.uuid4()),
    "uuid1": str(uuid.uuid1()), "hash": hash("text"), "id": id(object()), "name": there,
    "mtime": os.stat(there).st_mtime, "umask": os.umask(0),
}))
"""
NOTHING_WRITTEN = {"sandbox.filesystem.write": []}


@pytest.fixture(scope="module")
def runtime():
    with Runtime.temporary(pool=False) as opened:
        yield opened


def probe(runtime: Runtime, level: str, **more: object) -> Result:
    # In a session of its own: the same again in one session is not carried out again.
    fields = {"determinism": level, "session": f"s-{uuid4()}", **NOTHING_WRITTEN, **more}
    return runtime.exec("python", stdin=PROBE, set=fields).check()  # type: ignore[arg-type]


def seen(result: Result) -> dict[str, object]:
    assert result.result is not None
    found: dict[str, object] = json.loads(result.result.stdout)
    return found


@pytest.mark.sandbox
@pytest.mark.req("000-164", "000-167")
def test_at_d2_a_program_sees_the_same_every_time(runtime: Runtime) -> None:
    first, second = seen(probe(runtime, "D2")), seen(probe(runtime, "D2"))
    assert first == second
    assert first["time"] == first["mtime"] == float(FIXED_EPOCH)
    assert (first["zone"], first["umask"]) == ("UTC", 0o022)
    # Positive control: all of that varies, or is another value, without it.
    plain = [seen(probe(runtime, "D0")) for _ in range(2)]
    varied = {name for name in first if plain[0][name] != plain[1][name]}
    assert {"time", "urandom", "random", "uuid4", "id", "name", "mtime"} <= varied


@pytest.mark.sandbox
def test_other_programs_too(runtime: Runtime) -> None:
    script = "date -u +%Y; ls -l --time-style=+%Y /etc/passwd | cut -d' ' -f6; echo $$"
    answers = [
        runtime.exec("shell", stdin=f"{script} # {n}", set={"determinism": "D2", **NOTHING_WRITTEN})
        .check()
        .result.stdout  # type: ignore[union-attr]
        for n in range(2)
    ]
    assert answers[0].split()[:2] == ["1980", "1980"]
    assert answers[0] == answers[1]


@pytest.mark.sandbox
def test_waiting_still_works(runtime: Runtime) -> None:
    code = (
        "import asyncio, threading, time\n"
        "began = time.monotonic()\n"
        "asyncio.run(asyncio.sleep(0.02)); threading.Event().wait(0.02); time.sleep(0.02)\n"
        "print(time.monotonic() - began >= 0.06)\n"
    )
    fields = {"determinism": "D2", **NOTHING_WRITTEN}
    result = runtime.exec("python", stdin=code, timeout="20s", set=fields).check()
    assert result.result is not None
    assert result.result.stdout == "True\n"


@pytest.mark.sandbox
@pytest.mark.req("004-72")
def test_a_second_run_bears_the_claim_out(runtime: Runtime) -> None:
    result = probe(runtime, "D2")
    assert result.determinism is not None
    assert (result.determinism["verified"], result.determinism["runs"]) == ("MATCH", 2)
    (event,) = [
        event
        for event in Traces(runtime.database).of_execution(result.execution_id)
        if event["event_type"] == "determinism"
    ]
    event["data"].pop("cache_key", None)  # of the result cache
    assert event["data"] == result.determinism
    # And the whole record verifies: one execution, though its tool ran twice.
    again = runtime.execute(
        {
            "execution_id": result.execution_id,
            "tool_id": "TL-011",
            "inputs": {"command": "python3", "stdin": "other"},
        }
    )
    assert again.reason_codes == ("EXECUTION_ID_REUSED",)


@pytest.mark.sandbox
def test_what_differs_is_said(runtime: Runtime) -> None:
    """Monotonic clocks go on, or waiting programs would hang; one that prints it is found."""
    code = "import time; print(time.monotonic_ns())"
    result = runtime.exec("python", stdin=code, set={"determinism": "D2", **NOTHING_WRITTEN})
    assert result.check().determinism is not None
    assert result.determinism["verified"] == "DIFF"  # type: ignore[index]
    assert result.determinism["differs"] == ["stdout"]  # type: ignore[index]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("level", "fields"), [("D2", {"sandbox.filesystem.level": "standard"}), ("D1", {})]
)
def test_no_second_run_where_it_would_do_harm_or_say_nothing(
    runtime: Runtime, level: str, fields: dict[str, object]
) -> None:
    mark = runtime.settings.root / "mark"
    script = "echo once >> mark; cat mark"
    result = runtime.exec("shell", stdin=script, set={"determinism": level, **fields})
    assert result.check().determinism["verified"] == "NOT_RUN"  # type: ignore[index]
    assert mark.read_text() == "once\n"
    mark.unlink()


def test_at_d0_nothing_is_claimed(runtime: Runtime) -> None:
    assert runtime.exec("shell", stdin="true").determinism is None


def test_a_program_that_would_see_the_real_clock_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    programs = root / "programs"
    programs.mkdir()
    source = tmp_path / "now.c"
    source.write_text(
        '#include <stdio.h>\n#include <time.h>\nint main(){printf("%ld\\n",time(0));}'
    )
    subprocess.run(["gcc", "-static", "-o", programs / "sh", source], check=True)
    with Runtime.open(root, pool=False) as runtime:
        file = root / "tools/shell/tool.yaml"
        file.write_text(file.read_text() + f'\npath: ["{programs}"]\n')
        approve(root, runtime.keyring, "shell", by="b", evidence="e", date="2026-01-01")
        result = runtime.exec("shell", stdin="true", cwd=root, set={"determinism": "D2"})
        assert result.reason_codes == ("DETERMINISM_UNSUPPORTED",), result.violations
        assert "statically" in result.violations[0].message


@pytest.mark.sandbox
@pytest.mark.req("000-162")
def test_versions_are_exact_recorded_and_used(tmp_path: Path) -> None:
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    with Runtime.open(root, pool=False) as runtime:
        result = runtime.exec("shell", stdin="true", cwd=root, set={"determinism": "D2"}).check()
        envelope = runtime.services.receipts.find(result.receipt_id).envelope
        statement = json.loads(base64.b64decode(envelope["payload"]))
        predicate = statement["predicate"]
        entry = runtime.services.registry.entry("TL-010", None)
        assert predicate["tool"]["version"] == entry.tool.version
        assert predicate["tool"]["pin"] == entry.pin.digest
        assert predicate["adapter"]["version"] == entry.adapter.version
        # The receipt names the build: both native parts, as they are installed.
        for part, name in (("init", native.INIT), ("determinism", native.DETERMINISM)):
            installed = (Path(native.__file__).parent / name).read_bytes()
            digest = hashlib.sha256(installed).hexdigest()
            assert predicate["environment"][f"{part}_sha256"] == digest
    for file in (root / "tools/shell/tool.yaml", next((root / "tools/shell/adapters").iterdir())):
        text = file.read_text()
        for version in ("latest", "^1.0.0", ">=1.0.0", "1.x", "1.0.0 - 1.9.0", "1.0.0 || 2.0.0"):
            file.write_text(text.replace('version: "1.1.0"', f'version: "{version}"'))
            with Runtime.open(root, pool=False) as runtime, pytest.raises(ActumError):
                approve(root, runtime.keyring, "shell", by="b", evidence="e", date="2026-01-01")
        file.write_text(text)
