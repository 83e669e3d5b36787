"""A secret given to a tool that says it in every way it can think of is found nowhere afterwards.

The same search finds it in every one of those places when nothing is taken out: so it can fail.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import tempfile
import time
import urllib.parse
from pathlib import Path

import pytest
from secret_project import NAME, make, open_project

from actum import Runtime
from actum.evidence.traces import Traces
from actum.runners import local
from actum.settings import load

#: New for each run: the search looks at folders that neighbours use too.
VALUE = f"kanarien/vogel+{os.urandom(6).hex()} \"singt'&laut"
#: Where a process could leave a file, besides the project; `TMPDIR` is the test's own.
PLACES = ("/dev/shm", "/run", "/var/tmp")

#: What a hostile tool says about the secret it was given. Nothing in here holds the value.
HOSTILE = f"""
import base64, json, os, sys, time, urllib.parse
s = os.environ["{NAME}"]
b = s.encode()
say = lambda text: (sys.stdout.write(text), sys.stdout.flush())
say("plain " + s + "\\n")
say("halves " + s[:9]); time.sleep(0.05); say(s[9:] + "\\n")
for byte in b: os.write(1, bytes([byte]))
say("\\n")
for lead in (b"", b"x", b"xx"):
    say(base64.b64encode(lead + b + b"tail").decode() + "\\n")
    say(base64.urlsafe_b64encode(lead + b).decode() + "\\n")
say(b.hex() + " " + b.hex().upper() + "\\n")
say(urllib.parse.quote(s, safe="") + " " + urllib.parse.quote_plus(s) + "\\n")
say(json.dumps({{"token": s}}) + "\\n")
out = os.environ["ACTUM_ARTIFACTS"]
open(os.path.join(out, "leak.txt"), "w").write("in a file: " + s)
open(os.path.join(out, "leak.bin"), "wb").write(bytes(200_000) + base64.b64encode(b) + bytes(5))
open(os.path.join(out, b.hex()), "w").write("in a name")
open("declared.json", "w").write(json.dumps([s]))
os.write(2, b[:5]); os.write(2, b[5:] + b"\\n")
raise RuntimeError("in an error: " + s)
"""


def spellings() -> list[bytes]:
    """Worked out here, not by the code under test: enough of each to give the secret away."""
    value = VALUE.encode()
    found = [value, value.hex().encode(), value.hex().upper().encode()]
    found += [urllib.parse.quote(VALUE, safe="").encode(), urllib.parse.quote_plus(VALUE).encode()]
    found.append(json.dumps(VALUE)[1:-1].encode())
    for lead in (b"", b"x", b"xx"):
        found += [
            encode(lead + value)[4:-4] for encode in (base64.b64encode, base64.urlsafe_b64encode)
        ]
    return found


def leaks(content: bytes) -> list[bytes]:
    return [text for text in spellings() if text in content]


def run(root: Path) -> dict[str, list[bytes]]:
    """Where -> what of the secret was found there, after the hostile tool has run."""
    live = bytearray()
    during: list[bytes] = []
    session = "canary"
    began = time.time() - 5

    def hear(_name: str, chunk: bytes) -> None:
        if not live:
            during.extend(_elsewhere(began))  # while the tool runs and has its secret
        live.extend(chunk)

    settings = load(root / ".actum", {"LOGNAME": "asker", "HOME": "/nonexistent"})
    with Runtime(settings, session=session, pool=False) as runtime:
        result = runtime.exec(
            "python",
            stdin=HOSTILE,
            cwd=root,
            secrets=[NAME],
            set={"outputs.output_files": ["declared.json"]},
            on_output=hear,
        )
        assert result.result is not None, result.violations
        assert result.result.exit_code == 1
        assert len(result.result.artifacts) == 4
        kept = Traces(runtime.database).of_execution(result.execution_id)
        found = {
            "live": leaks(bytes(live)),
            "result": leaks(repr(result).encode()) + leaks(json.dumps(result.document()).encode()),
            "stdout": leaks(result.result.stdout.encode()),
            "stderr": leaks(result.result.stderr.encode()),
            "events": leaks(json.dumps(kept).encode()),
            # While everything is open, so that the write-ahead log is there as well.
            "files": _files(root / ".actum"),
        }
    found["files afterwards"] = _files(root / ".actum")
    found["elsewhere"] = [*during, *_elsewhere(began)]
    return found


def _elsewhere(since: float) -> list[bytes]:
    """The same search in files outside the project that were written since then."""
    found = []
    for place in (tempfile.gettempdir(), *PLACES):
        for folder, _folders, names in os.walk(place):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.lstat(path)
                    if not stat.S_ISREG(status.st_mode) or status.st_mtime < since:
                        continue
                    with open(path, "rb") as file:
                        found += leaks(file.read(16 << 20)) + leaks(path.encode())
                except OSError:
                    continue  # a neighbour's, and gone by now
    return found


def _files(folder: Path) -> list[bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name.endswith("-wal") or path.name == "actum.db" for path in files)
    found = []
    for path in files:
        found += leaks(path.read_bytes()) + leaks(str(path).encode())
    return found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERATORS_TOKEN", VALUE)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return make(tmp_path, {NAME: '{ env = "OPERATORS_TOKEN" }'})


@pytest.mark.sandbox
@pytest.mark.req("004-54", "004-57", "004-58")
def test_nothing_of_it_is_found(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert {where: texts for where, texts in run(root).items() if texts} == {}
    printed = "".join(capfd.readouterr())  # by any process of ours
    assert leaks(printed.encode()) == []


@pytest.mark.sandbox
def test_the_search_elsewhere_would_have_found_it(root: Path) -> None:
    began = time.time() - 5
    assert _elsewhere(began) == []
    for place in (tempfile.gettempdir(), "/dev/shm"):
        with tempfile.NamedTemporaryFile(dir=place) as file:
            file.write(b"x" + VALUE.encode())
            file.flush()
            assert VALUE.encode() in _elsewhere(began)


@pytest.mark.sandbox
def test_the_search_would_have_found_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "redaction_of", lambda _secrets: None)
    found = run(root)
    assert all(found[place] for place in ("live", "result", "stdout", "stderr", "files")), found
    assert set(spellings()) <= {*found["live"], *found["files"]}


@pytest.mark.sandbox
@pytest.mark.req("004-58")
def test_records_say_that_it_was_taken_out_and_how_often(root: Path) -> None:
    with open_project(root) as runtime:
        result = runtime.exec("python", stdin=HOSTILE, cwd=root, secrets=[NAME])
        assert result.result is not None
        assert f"plain [redacted:{NAME}]\n" in result.result.stdout
        (event,) = [
            event
            for event in Traces(runtime.database).of_execution(result.execution_id)
            if event["event_type"] == "redaction"
        ]
        assert event["data"]["secrets"][NAME] > 10


@pytest.mark.sandbox
def test_a_stream_has_the_digest_of_what_is_left(root: Path) -> None:
    """Anybody who guesses a short secret could confirm the guess by a digest of the raw stream."""
    with open_project(root) as runtime:
        script = f'printf "%s" "${NAME}"'
        result = runtime.exec("shell", stdin=script, cwd=root, secrets=[NAME]).check()
        assert result.streams is not None
        told = result.streams["stdout"].sha256
        assert told != hashlib.sha256(VALUE.encode()).hexdigest()
        assert told == hashlib.sha256(f"[redacted:{NAME}]".encode()).hexdigest()


@pytest.mark.sandbox
def test_what_only_looks_like_a_secret_is_noted_and_left_alone(root: Path) -> None:
    with open_project(root) as runtime:
        token = "ghp_" + "a1" * 18
        result = runtime.exec("shell", stdin=f"echo {token}", cwd=root).check()
        assert result.result is not None
        assert result.result.stdout == token + "\n"
        notes = [
            event["data"]
            for event in Traces(runtime.database).of_execution(result.execution_id)
            if event["event_type"] == "secret_suspected"
        ]
        assert notes == [{"stdout": ["github_personal"]}]
