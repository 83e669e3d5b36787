"""Spoilt packets, by the hundred thousand, for the program that runs as pid 1 of every sandbox."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from actum.sandbox import wire

if TYPE_CHECKING:
    from actum.sandbox.wire import Grant, Request

_SOURCES = Path(__file__).parents[2] / "src/actum/sandbox/jail"
SOAK = os.environ.get("ACTUM_SOAK") == "1"
#: Each is another sequence of cases; a number that found something stays here.
_SEEDS = (1, 2)
_CASES = 10_000_000 if SOAK else 150_000


def _text(chance: random.Random) -> str:
    length = chance.choice((0, 1, 3, 10, 40, 300))
    return "".join(chr(chance.choice((65, 47, 233, 0x20AC, 0x1F600, 1))) for _ in range(length))


def _several(chance: random.Random, most: int = 6) -> list[str]:
    return [_text(chance) for _ in range(chance.randint(0, most))]


def _grants(chance: random.Random, most: int) -> list[Grant]:
    return [
        {
            "path": f"/{_text(chance)}",
            "write": chance.random() < 0.5,
            "device": chance.getrandbits(64),
            "inode": chance.getrandbits(chance.choice((8, 32, 64))),
            "layers": chance.choice(("", f"/{_text(chance)}")),
        }
        for _ in range(chance.randint(0, most))
    ]


def _request(chance: random.Random, *, large: bool) -> Request:
    many = 600 if large else 5
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
        "addresses": _several(chance),
        "listen": [(text, chance.randrange(65_536)) for text in _several(chance)],
        "provided": {
            f"p{number}": chance.randbytes(chance.choice((0, 1, 1_000)))
            for number in range(chance.randint(0, 3))
        },
        "resolver": chance.choice(("", "198.18.0.2")),
        "steady": False,
        "secrets": _several(chance),
    }


def _words(chance: random.Random, doors: int) -> bytes:
    """As an init is started with them (jail/words.c)."""

    def numbers(count: int) -> list[str]:
        return [str(chance.randrange(-1, 200)) for _ in range(count)]

    limits, usage, folders = (chance.randint(0, most) for most in (16, 16, 8))
    words = [*numbers(8), str(doors), *numbers(doors), *numbers(8), str(limits)]
    for _ in range(limits):
        words += [*numbers(1), _text(chance)]
    words += [str(usage), *numbers(usage), "group", str(folders), *numbers(folders + 3)]
    return b"".join(f"{word}\0".encode() for word in words)


def _corpus() -> bytes:
    chance = random.Random(7)
    packets: list[tuple[bytes, bytes]] = []
    for number in range(40):
        request = _request(chance, large=number % 10 == 0)
        trees = _grants(chance, 600 if number % 10 == 0 else 5)
        ports = [chance.randrange(65_536) for _ in range(chance.choice((0, 1, 250)))]
        kind = {"allow_fork": True, "steady": False, "interpreter": number % 2 == 0}
        figures = {"memory_bytes": 1, "tasks": 2, "quota_us": 3, "scratch_bytes": number}
        packets += [
            (b"R", wire.pack(request, _several(chance))),
            (b"T", wire.pack_trees({"owner_uid": 7, "owner_gid": 8, "grants": trees})),
            (b"M", wire.pack_make({**kind, **figures}, _several(chance))),  # type: ignore[typeddict-item]
            (b"L", wire.listen_order(_text(chance), ports)),
            (b"W", _words(chance, chance.randint(0, 8))),
            (b"S", chance.randbytes(chance.choice((0, 10, 4_000)))),
        ]
    packets += [(b"w", _words(chance, doors)) for doors in (-1, 9)]
    # At their bounds, and one beyond; a small letter is to be refused.
    order = {"allow_fork": 1, "steady": 0, "interpreter": 0, "scratch_bytes": 1}
    for kinds, beyond in (((b"M", b"L"), 0), ((b"m", b"l"), 1)):
        limits, ports = ["1"] * (63 + beyond), [1] * (wire.MAX_PASSED + beyond)
        made = wire.pack_make(order, limits), wire.listen_order("a", ports)  # type: ignore[arg-type]
        packets += zip(kinds, made, strict=True)
    return b"".join(kind + struct.pack("=I", len(text)) + text for kind, text in packets)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("fuzz")
    program, corpus = folder / "mutate_wire", folder / "corpus"
    corpus.write_bytes(_corpus())
    watch = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    watch += ["-D_exit=leave", "-Dmmap=watched_mmap", "-Dmunmap=watched_munmap"]
    sources = [Path(__file__).with_name("mutate_wire.c"), _SOURCES / "wire.c", _SOURCES / "words.c"]
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", *watch, "-I", _SOURCES, "-o", program, *sources],
        check=True,
    )
    return program, corpus


@pytest.mark.soak
@pytest.mark.parametrize("seed", _SEEDS)
def test_no_packet_is_read_beyond_its_end_or_as_another(
    harness: tuple[Path, Path], seed: int
) -> None:
    program, corpus = harness
    done = subprocess.run(
        [program, corpus, str(seed), str(_CASES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    accepted, refused = map(int, done.stdout.split())
    assert accepted + refused == _CASES
    # Most are spoilt beyond reading, and many are not: both ways are gone often.
    assert min(accepted, refused) > _CASES // 20
