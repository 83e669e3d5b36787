"""Coverage-guided fuzzing of the program that runs as spawner, opener and pid 1 of every sandbox.

libFuzzer changes packets that the host's own encoder made (`sandbox.wire`), under AddressSanitizer
and UndefinedBehaviorSanitizer. fuzz_jail.c says which parsers take part and what must hold.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from actum.sandbox import wire

if TYPE_CHECKING:
    from actum.sandbox.wire import Grant, Make, Request

_HERE = Path(__file__).parent
_SOURCES = _HERE.parents[1] / "src/actum/sandbox/jail"
#: The others are included by fuzz_jail.c.
_LINKED = ("wire.c", "words.c", "net.c")
SOAK = os.environ.get("ACTUM_SOAK") == "1"
_SEED = 1
_RUNS = 30_000_000 if SOAK else 500_000
#: Of the controls: a planted bug is found much earlier.
_CONTROL_RUNS = 2_000_000
#: Of one input. No input takes a thousandth of it; a parser that does not end is found.
_TIMEOUT_S = 120
_FLAGS = (
    *("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-fno-omit-frame-pointer"),
    *("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"),
    *("-include", str(_HERE / "fake_kernel.h")),
)
#: As every file of the fake kernel has it (fuzz_jail.c).
_DEVICE, _INODE = 7, 8
_NO_ERROR = bytes(36)  #: netlink's answer to an address that was added

Record = Callable[[str, object], None]
Section = tuple[bytes, int]

pytestmark = pytest.mark.skipif(
    shutil.which("clang") is None, reason="no clang: run scripts/debian-packages"
)


def _input(kind: bytes, *sections: Section, fails_at: int = 0, errno: int = 0) -> bytes:
    head = kind + bytes((fails_at, errno))
    return head + b"".join(
        struct.pack("<HB", len(content), descriptors) + content for content, descriptors in sections
    )


def _text(chance: random.Random) -> str:
    length = chance.choice((0, 1, 3, 10, 40))
    return "".join(chr(chance.choice((65, 47, 233, 0x20AC, 0x1F600, 1))) for _ in range(length))


def _several(chance: random.Random, most: int = 4) -> list[str]:
    return [_text(chance) for _ in range(chance.randint(0, most))]


def _grants(chance: random.Random, count: int) -> list[Grant]:
    return [
        {
            "path": f"/{_text(chance)}",
            "write": chance.random() < 0.5,
            "device": _DEVICE,
            "inode": _INODE if chance.random() < 0.9 else chance.getrandbits(64),
            "layers": chance.choice(("", f"/{_text(chance)}")),
            "source": chance.choice(("", f"/{_text(chance)}")),
        }
        for _ in range(count)
    ]


def _request(chance: random.Random, *, many: int) -> Request:
    return {
        "argv": ["sh", *_several(chance, many)],
        "environment": {f"N{number}": text for number, text in enumerate(_several(chance))},
        "executable": "/usr/bin/sh",
        "executable_device": chance.getrandbits(64),
        "executable_inode": chance.getrandbits(64),
        "working_directory": f"/{_text(chance)}",
        "grants": _grants(chance, many // 2),
        "protect": _several(chance),
        "deny": _several(chance),
        "memory_bytes": 1,
        "cpu_cores": 1,
        "scratch_bytes": chance.getrandbits(40),
        "artifacts_bytes": chance.getrandbits(40),
        "max_children": chance.getrandbits(10),
        "etc": {f"e{number}": text for number, text in enumerate(_several(chance))},
        "addresses": chance.choice(([], ["198.18.0.1/15"], ["fd00::1/64", "127.0.0.1"])),
        "listen": [("198.18.0.1", chance.randrange(65_536)) for _ in range(chance.choice((0, 2)))],
        "provided": {
            f"p{number}": chance.randbytes(chance.choice((0, 1, 100)))
            for number in range(chance.randint(0, 3))
        },
        "resolver": chance.choice(("", "198.18.0.2", "fd00::2")),
        "steady": False,
        "secrets": _several(chance),
    }


def _words(*words: object) -> bytes:
    return b"".join(f"{word}\0".encode() for word in words)


def _member_words(chance: random.Random, doors: int | None = None) -> bytes:
    """As an init is started with them (jail/words.c)."""

    def numbers(count: int) -> list[int]:
        return [chance.randrange(-1, 200) for _ in range(count)]

    limits, usage, folders = (chance.randint(0, most) for most in (16, 16, 8))
    doors = chance.randint(0, 8) if doors is None else doors
    words: list[object] = [*numbers(8), doors, *numbers(doors), *numbers(8), limits]
    for _ in range(limits):
        words += [*numbers(1), _text(chance)]
    words += [usage, *numbers(usage), "group", folders, *numbers(folders + 3)]
    return _words(*words)


def _spawner_words(*, limits: int, registers: bool) -> bytes:
    """As the spawner is started with them (jail/serve.c)."""
    words: list[object] = [3, 4, 5, 6, 5, 1000, 1000, 0, "actum-", 1]
    words += [2, 7, 8]  # parents
    words += [1, 0, "memory.swap.max", "0"]  # once
    words += [limits, *(each for number in range(limits) for each in (0, f"limit.{number}"))]
    words += [2, 0, "memory.peak", 1, "limit.0"]  # usage
    words += [1, 0, "cgroup.procs"]  # doors
    words += [0, "limit.0", 0, "memory.events"]  # task_limit, oom
    words += [1, 0, "cgroup.event_control"] if registers else [0]
    return _words(*words)


def _order(limits: int, *, interpreter: bool = False) -> bytes:
    make: Make = {
        "allow_fork": True,
        "steady": False,
        "interpreter": interpreter,
        "memory_bytes": 1,
        "tasks": 2,
        "quota_us": 3,
        "scratch_bytes": 4,
    }
    return wire.pack_make(make, ["1"] * limits)


def _trees(grants: list[Grant], owner: int = 0) -> bytes:
    return wire.pack_trees({"owner_uid": owner, "owner_gid": owner, "grants": grants})


def _seeds() -> list[bytes]:
    chance = random.Random(7)
    reply, made = (_NO_ERROR, 0), []
    for number in range(8):
        many = 300 if number == 0 else 5
        packed = wire.pack(_request(chance, many=many), _several(chance))
        trees = _trees(_grants(chance, many // 3), chance.choice((0, 1000)))
        ports = [chance.randrange(65_536) for _ in range(chance.choice((0, 1, 250)))]
        made += [
            _input(b"R", (b"J" + packed, 0), reply),
            _input(b"R", (b"F", 1), (packed, 0)),
            _input(b"T", (b"J" + trees, 0)),
            _input(b"T", (b"F", 1), (trees, 0)),
            _input(b"M", (_order(number), 0)),
            _input(b"L", (wire.listen_order(chance.choice(("::1", "127.0.0.1", "a")), ports), 0)),
            _input(b"W", (_member_words(chance), 0)),
            _input(b"S", (chance.randbytes(chance.choice((0, 10, 400))), 0)),
            _input(b"S", (_text(chance).encode(), 0)),
        ]
    for fails_at in (0, 3, 10, 20, 40):
        fails = {"fails_at": fails_at, "errno": 12}
        for registers in (False, True):
            words = (_spawner_words(limits=2, registers=registers), 0)
            orders = (_order(2), 0), (_order(2, interpreter=True), 0), (b"G", 1), (_order(1), 0)
            made.append(_input(b"V", words, *orders, (b"L", 0), **fails))
        for layers in ("", "/layers"):
            grants: list[Grant] = [
                {
                    "path": "/a",
                    "write": True,
                    "device": 7,
                    "inode": 8,
                    "layers": layers,
                    "source": layers,
                }
            ] * 3
            message = (b"J" + _trees(grants, 1000), 1)
            made.append(_input(b"O", message, (b"J" + _trees(grants, 7), 1), message, **fails))
        made.append(_input(b"O", (b"F", 2), (_trees(_grants(chance, 300)), 0), **fails))
        status = b"%d (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 21 22"
        listed = [(status % (pid, pid * 7 % 5), 3 + pid % 3) for pid in range(2, 12)]
        made.append(_input(b"P", *listed, **fails))
    return made


def _acceptable() -> list[bytes]:
    """As the host writes it, up to the bounds."""
    chance = random.Random(8)
    made = []
    for number in range(20):
        request = _request(chance, many=300 if number % 10 == 0 else 5)
        packed = wire.pack({**request, "addresses": []}, _several(chance))
        trees = _trees(_grants(chance, chance.choice((0, 1, 300))))
        made += [
            _input(b"R", (b"J" + wire.pack(request, _several(chance)), 0), (_NO_ERROR, 0)),
            _input(b"R", (b"F", 1), (packed, 0)),
            _input(b"T", (b"J" + trees, 0)),
            _input(b"T", (b"F", 1), (trees, 0)),
            _input(b"M", (_order(number), 0)),
            _input(b"W", (_member_words(chance), 0)),
        ]
    ports = [1] * wire.MAX_PASSED
    return [
        *made,
        _input(b"M", (_order(63), 0)),
        _input(b"L", (wire.listen_order("::1", ports), 0)),
        _input(b"W", (_member_words(chance, doors=8), 0)),
    ]


def _beyond() -> list[bytes]:
    """The same with one more than there may be, or with one byte behind its end."""
    ports = [1] * (wire.MAX_PASSED + 1)
    return [
        _input(b"M", (_order(64), 0)),
        _input(b"M", (_order(1) + b"\0", 0)),
        _input(b"L", (wire.listen_order("::1", ports), 0)),
        *(_input(b"W", (_member_words(random.Random(8), doors=doors), 0)) for doors in (-1, 9)),
        _input(b"T", (b"J" + _trees([]) + b"\0", 0)),
        _input(b"T", (b"F", 0), (_trees([]), 0)),
    ]


def _build(folder: Path, sources: Path = _SOURCES) -> Path:
    program = folder / "fuzz_jail"
    linked = [sources / name for name in _LINKED]
    command = ["clang", *_FLAGS, "-I", sources, "-o", program, _HERE / "fuzz_jail.c", *linked]
    subprocess.run(command, check=True)
    return program


def _fuzz(program: Path, runs: int) -> tuple[int, str]:
    """Exit code and what the fuzzer said."""
    corpus = program.parent / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(_seeds()):
        (corpus / f"{number:03}").write_bytes(seed)
    done = subprocess.run(
        [
            *(program, f"-runs={runs}", f"-seed={_SEED}", "-max_len=65536", "-print_final_stats=1"),
            *(f"-timeout={_TIMEOUT_S}", f"-artifact_prefix={program.parent}/", corpus),
        ],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize(("expected", "inputs"), [("accepted", _acceptable), ("refused", _beyond)])
def test_what_the_host_writes_is_accepted_and_one_more_is_refused(
    program: Path, tmp_path: Path, expected: str, inputs: Callable[[], list[bytes]]
) -> None:
    for number, content in enumerate(inputs()):
        (tmp_path / f"{number:03}").write_bytes(content)
    done = subprocess.run(
        [program, *sorted(tmp_path.iterdir())],
        env={**os.environ, "JAIL_EXPECTS": expected},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8_000:]
    assert done.stderr.count("Executed ") == len(inputs())


@pytest.mark.soak
def test_no_input_breaks_a_parser(program: Path, record_property: Record) -> None:
    code, said = _fuzz(program, _RUNS)
    assert code == 0, said[-8_000:]
    executed = int(re.findall(r"stat::number_of_executed_units:\s+(\d+)", said)[-1])
    edges, features, kept = map(int, re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", said)[-1])
    record_property(
        "figure",
        f"jail parsers under libFuzzer: {executed} executions, {edges} edges, {features} features,"
        f" {kept} inputs kept",
    )
    assert executed >= _RUNS


#: Where each bug is planted, and what reports it (a pattern).
_PLANTED = {
    "a length that is off by one": (
        "wire.c",
        "if (size > (size_t)(reader->end - reader->at))",
        "if (size > (size_t)(reader->end - reader->at) + 1)",
        r"AddressSanitizer: |violated: it was read as something else",
    ),
    "a list without its bound": (
        "words.c",
        "if (count < 0 || count > most)",
        "if (count < 0)",
        # Which of them comes first depends on the list, and that on where the fuzzer gets first.
        r"runtime error: index|AddressSanitizer: |violated: more of something",
    ),
    "a descriptor that an error leaves open": (
        "opener.c",
        "grant->path[1] ? idmap : -1) < 0) {\n        close(tree);\n",
        "grant->path[1] ? idmap : -1) < 0) {\n",
        "violated: an open descriptor is left behind",
    ),
    "a group of the member before that is removed": (
        "serve.c",
        "    member.folder_count = 0; /* left by the previous member */\n",
        "",
        "violated: a group of another member is removed",
    ),
    "a process too many that is not named": (
        "tasks.c",
        "if (all - kept + each >= tasks.processes)",
        "if (all - kept + each > tasks.processes)",
        "violated: another number of children",
    ),
}


@pytest.mark.parametrize("planted", _PLANTED)
def test_a_planted_bug_is_found(tmp_path: Path, planted: str) -> None:
    name, sound, broken, report = _PLANTED[planted]
    sources = tmp_path / "jail"
    shutil.copytree(_SOURCES, sources)
    text = (sources / name).read_text()
    assert text.count(sound) == 1
    (sources / name).write_text(text.replace(sound, broken))
    code, said = _fuzz(_build(tmp_path, sources), _CONTROL_RUNS)
    assert code != 0
    assert re.search(report, said), said[-8_000:]
