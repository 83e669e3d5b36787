"""Every hostile executor ends as promised, leaves nothing behind, and the next call is served.

Each file below `hostile/` says in its first line how it must end. They are approved here by a
reviewer who looks at nothing, so the gate protects nobody: only the walls do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pure_house import LIMITS, PureHouse, wrapped

from actum.contract.outcome import ActionStatus

HOSTILE = sorted((Path(__file__).parent / "hostile").glob("*.py"))
SECRET = "correct-horse-battery-staple"
TEXT = "canary-text-93f1"
PAYLOAD = {"text": TEXT, "password": SECRET}

#: Which rows a file proves, by the longest beginning of its name that is listed.
ROWS = {
    "file": ("001-20", "001-35"),
    "net": ("001-21", "001-37"),
    "net_http": ("001-21", "001-36"),
    "net_urlopen": ("001-21", "001-36"),
    "net_rpc": ("001-21", "001-38"),
    "db": ("001-22", "001-39"),
    "process": ("001-23",),
    "thread": ("001-23", "001-40"),
    "signal": ("001-40",),
    "env": ("001-24",),
    "env_write": ("001-40",),
    "place": ("001-25",),
    "place_chdir": ("001-40",),
    "place_umask": ("001-40",),
    "place_setlocale": ("001-25", "001-40"),
    "clock": ("001-25",),
    "entropy": ("001-18",),
    "state": ("001-40",),
    "state_request": ("001-41",),
    "state_limits": ("001-2",),
    "state_version": ("001-2",),
    "state_capabilities": ("001-2",),
    "state_id": ("001-2",),
    "returns": ("001-60", "001-62"),
    "returns_100": ("001-46",),
    "returns_many": ("001-46",),
    "returns_deep": ("001-46",),
    "returns_long": ("001-46",),
    "returns_forged": ("001-48",),
    "frame": ("001-48", "001-49"),
    "harness": ("001-48", "001-49"),
    "raises": ("001-27", "001-28", "001-43", "001-44"),
    "ends": ("001-27", "001-28"),
    "loop": ("001-45",),
    "memory": ("001-27",),
    "kernel": ("001-20", "001-23"),
    "audit": ("001-50",),
    "secret": ("001-42",),
}


def _rows(name: str) -> tuple[str, ...]:
    return ROWS[max((start for start in ROWS if name.startswith(start)), key=len)]


def _cases() -> Iterator[object]:
    for file in HOSTILE:
        yield pytest.param(file, id=file.stem, marks=pytest.mark.req(*_rows(file.stem)))


def _said(file: Path, word: str) -> str | None:
    for line in file.read_text().splitlines():
        if line.startswith(f"# {word}: "):
            return line.partition(": ")[2]
    return None


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PureHouse]:
    os.environ["CANARY"] = "canary-environment-77aa"
    with PureHouse(tmp_path_factory.mktemp("hostile")) as house:
        for file in HOSTILE:
            name = f"hostile_{file.stem}"
            # Long for all that end by themselves: a busy machine must not look like a timeout.
            endless = "EXECUTOR_TIMEOUT" in (_said(file, "ends") or "")
            limits = replace(LIMITS, timeout_ms=300 if endless else 20_000)
            house.put(name, wrapped(name, file.read_text(), limits), limits)
        house.reopen()
        yield house
    del os.environ["CANARY"]


def test_the_collection_is_large_enough() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("file", list(_cases()))
def test_a_hostile_executor_ends_as_promised(house: PureHouse, file: Path) -> None:
    payload = dict(PAYLOAD)
    result = house.act(f"hostile_{file.stem}", payload)
    status, _, reason = (_said(file, "ends") or "").partition(" ")
    note = house.plane.note(result)
    assert (result.status.value, result.reason_codes) == (
        status,
        (reason,) if reason else (),
    ), note
    if result.status is ActionStatus.SUCCESS:
        assert house.plane.value(result) == json.loads(_said(file, "value") or "")
    else:
        assert result.output_digest is None
    assert payload == PAYLOAD  # the caller's own copy
    assert _serves(house)


def _serves(house: PureHouse) -> bool:
    """The pipeline, the zygote and the modules in it are as they were."""
    result = house.act("text_process", {"text": "still here"})
    return house.plane.value(result) == "STILL HERE"


@pytest.mark.req("001-20", "001-35")
def test_none_of_them_left_a_file() -> None:
    left = [path for path in Path("/tmp").iterdir() if path.name.startswith("actum-hostile")]
    assert left == []


@pytest.mark.req("001-45")
def test_none_of_them_left_a_process(house: PureHouse) -> None:
    house.act("hostile_loop_endless", PAYLOAD)
    house.plane.close()
    assert _executor_processes() == []


def _executor_processes() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int(entry.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            command = entry.joinpath("cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if b"actum.executors.zygote" in command and parent in (os.getpid(), 1):
            found.append(f"{entry.name}: {command!r}")
    return found


@pytest.mark.req("001-32", "001-33", "001-34", "001-42")
def test_no_byte_of_payload_output_or_environment_is_kept_anywhere(house: PureHouse) -> None:
    for file in HOSTILE:
        if file.stem.startswith(("secret", "raises", "state", "env")):
            house.act(f"hostile_{file.stem}", PAYLOAD)
    house.act("text_process", {"text": TEXT, "operation": "reverse"})
    house.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    forbidden = [
        word.encode() for word in (SECRET, SECRET[::-1], TEXT, TEXT[::-1], "canary-environment")
    ]
    searched = 0
    for path in house.home.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            searched += len(content)
            assert not [word for word in forbidden if word in content], path
    assert searched > 100_000  # there was something to be found in
