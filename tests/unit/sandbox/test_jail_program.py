"""The program that every init is: what it knows, who may start it, and how it reads a request."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actum import native
from actum.sandbox import wire

if TYPE_CHECKING:
    from actum.sandbox.wire import Grant, Request

_PROJECT = Path(__file__).parents[3]
_SOURCES = _PROJECT / "src/actum/sandbox/jail"


def test_it_knows_the_system_calls_and_errors_as_the_rest_does() -> None:
    script = [sys.executable, _PROJECT / "scripts/jail-calls"]
    made = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert (_SOURCES / "calls.h").read_text() == made, "run `make build`"
    assert '{165, "mount"}' in made


def test_bounds_are_the_same_on_both_sides() -> None:
    text = (_SOURCES / "jail.h").read_text()
    for name in ("MAX_INLINE", "MAX_PACKET", "MAX_PASSED"):
        (number,) = re.findall(rf"\b{name} = (\d+)", text)
        assert int(number) == getattr(wire, name)


def test_only_a_spawner_can_start_it(tmp_path: Path) -> None:
    program = tmp_path / "jail"
    program.write_bytes(native.content(native.INIT))
    program.chmod(0o755)
    # The last one is as it must be; but it is not pid 1, so there is nothing to build.
    for words in ([], ["3"], ["x"] * 30, ["1"] * 28, ["1"] * 30, ["1"] * 29):
        done = subprocess.run([program, *words], capture_output=True, timeout=10, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, b"", b""), words


# -- how it reads a request ------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same source, watched: an access outside of the packet ends it with a report."""
    program = tmp_path_factory.mktemp("reader") / "reader"
    watch = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = [Path(__file__).with_name("reader.c"), _SOURCES / "wire.c"]
    subprocess.run(["gcc", "-std=c11", *watch, "-I", _SOURCES, "-o", program, *sources], check=True)
    return program


def _read(reader: Path, packet: bytes, *how: str) -> tuple[int, bytes]:
    done = subprocess.run([reader, *how], input=packet, capture_output=True, check=False)
    assert done.returncode in (0, 3), done.stderr[-2_000:].decode()
    return done.returncode, done.stdout


def _request(**changed: object) -> Request:
    request: Request = {
        "argv": ["sh", "-c", "true"],
        "environment": {"A": "b=c", "PATH": "/usr/bin"},
        "executable": "/usr/bin/sh",
        "executable_device": 2**63 + 5,
        "executable_inode": 77,
        "working_directory": "/work",
        "grants": [
            {
                "path": "/work",
                "write": True,
                "device": 1,
                "inode": 2**64 - 1,
                "layers": "/l",
                "source": "/s",
            }
        ],
        "protect": ["/work/.git"],
        "deny": [],
        "memory_bytes": 1,
        "cpu_cores": 1,
        "scratch_bytes": 4_096,
        "artifacts_bytes": 8_192,
        "max_children": 3,
        "etc": {"hosts": "127.0.0.1 localhost\n"},
        "addresses": ["198.18.0.1/15"],
        "listen": [("198.18.0.1", 443)],
        "provided": {"a/b": bytes(range(256))},
        "resolver": "198.18.0.2",
        "steady": False,
        "secrets": ["\udcff secret"],
    }
    return {**request, **changed}  # type: ignore[typeddict-item]


def _grant_lines(grants: list[Grant]) -> list[str]:
    return [
        line
        for grant in grants
        for line in (
            f"grants {os.fsencode(grant['path']).hex()}",
            f"{int(grant['write'])} {grant['device']} {grant['inode']}",
            f"layers {os.fsencode(grant['layers']).hex()}",
            f"source {os.fsencode(grant['source']).hex()}",
        )
    ]


def _lines(request: Request, limits: list[str]) -> list[str]:
    """What the reader prints of it."""

    def text(name: str, value: str | bytes) -> str:
        content = value if isinstance(value, bytes) else os.fsencode(value)
        return f"{name} {content.hex()}"

    lines = [text("argv", each) for each in request["argv"]]
    lines += [
        text("environment", f"{name}={value}") for name, value in request["environment"].items()
    ]
    lines.append(text("executable", request["executable"]))
    lines.append(f"executable_device {request['executable_device']}")
    lines.append(f"executable_inode {request['executable_inode']}")
    lines.append(text("working_directory", request["working_directory"]))
    lines += [text("secrets", each) for each in request["secrets"]]
    lines += _grant_lines(request["grants"])
    lines += [text("protect", each) for each in request["protect"]]
    lines += [text("deny", each) for each in request["deny"]]
    lines += [text("limits", each) for each in limits]
    for name in ("scratch_bytes", "artifacts_bytes", "max_children"):
        lines.append(f"{name} {request[name]}")  # type: ignore[literal-required]
    for name, value in request["etc"].items():
        lines += [text("etc", name), text("etc", value)]
    lines += [text("addresses", each) for each in request["addresses"]]
    for address, port in request["listen"]:
        lines += [text("listen", address), str(port)]
    for name, content in request["provided"].items():
        lines += [text("provided", name), text("provided", content)]
    return [*lines, text("resolver", request["resolver"])]


_TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


@settings(max_examples=25, deadline=None)
@given(
    argv=st.lists(_TEXT, min_size=1, max_size=30),
    protect=st.lists(_TEXT, max_size=30),
    etc=st.dictionaries(_TEXT, _TEXT, max_size=5),
    provided=st.dictionaries(_TEXT, st.binary(max_size=50), max_size=5),
    secrets=st.lists(_TEXT, max_size=5),
    limits=st.lists(_TEXT, max_size=5),
)
def test_it_reads_what_was_packed(reader: Path, limits: list[str], **changed: object) -> None:
    request = _request(**changed)
    packet = wire.INLINE + wire.pack(request, limits)
    code, output = _read(reader, packet)
    *lines, report = output.split(b"\n")
    assert (code, [line.decode() for line in lines]) == (0, _lines(request, limits))
    # Whatever the bytes, a report of them is JSON, and says them as Python has them.
    assert json.loads(report) == packet[:4_096].decode("utf-8", "surrogateescape")


def test_thousands_of_items_fit_and_the_tools_part_is_read_alike(reader: Path) -> None:
    request = _request(argv=["a"] * 3_000, secrets=["s"] * 2_000)
    packed = wire.pack(request, ["1"])
    assert len(packed) < wire.MAX_INLINE
    code, output = _read(reader, wire.INLINE + packed)
    assert code == 0 and output.split(b"\n")[:-1] == [
        each.encode() for each in _lines(request, ["1"])
    ]
    tool = wire.unpack_tool(packed)
    for name in ("argv", "environment", "executable", "working_directory"):
        assert tool[name] == request[name]  # type: ignore[literal-required]
    assert tool["secrets"] == [os.fsencode(each) for each in request["secrets"]]


def test_a_request_that_was_cut_or_spoilt_is_refused_and_never_read_beyond(reader: Path) -> None:
    packet = wire.INLINE + wire.pack(_request(), ["1", "2"])
    assert _read(reader, packet)[0] == 0
    for size in {0, 1, *range(2, len(packet), 7), len(packet) - 1}:
        code, output = _read(reader, packet[:size])
        assert code == 3 and b"the request cannot be read" in output, size
    assert _read(reader, packet + b"\0")[0] == 3
    chance = random.Random(7)
    for _ in range(150):
        spoilt = bytearray(packet)
        for _ in range(chance.randint(1, 4)):
            spoilt[chance.randrange(1, len(spoilt))] = chance.choice((0, 1, 127, 128, 255))
        _read(reader, bytes(spoilt))


def test_the_opener_reads_what_was_packed_in_a_packet_and_in_a_file(reader: Path) -> None:
    grants: list[Grant] = [
        {
            "path": f"/work/{number}\udcff",
            "write": bool(number % 2),
            "device": 1,
            "inode": 2**64 - 1,
            "layers": "" if number % 2 else f"/layers/{number}",
            "source": f"/sealed/{number}" if number % 2 else "",
        }
        for number in range(5)
    ]
    for many, how in ((1, ["inline"]), (1, ["in", "file"]), (2_000, ["in", "file"])):
        packed = wire.pack_trees({"owner_uid": 7, "owner_gid": 2**32 - 2, "grants": grants * many})
        packet = packed if len(how) == 2 else wire.INLINE + packed
        code, output = _read(reader, packet, *how)
        expected = [f"7 {2**32 - 2} {len(how) - 1}", *_grant_lines(grants * many)]
        assert (code, output.decode().splitlines()) == (0, expected * 2)
        for size in {0, 1, *range(2, len(packet), len(packet) // 40 + 1), len(packet) - 1}:
            code, output = _read(reader, packet[:size], *how)
            assert code == 3, size
        assert _read(reader, packet + b"\0", *how)[0] == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"argv": []},
        {"argv": ["a\0b"]},
        {"working_directory": "/\0"},
        {"etc": {"hosts": "\0"}},
        {"listen": [("127.0.0.1", 65_536)]},
    ],
)
def test_what_no_program_could_be_given_is_refused(
    reader: Path, changed: dict[str, object]
) -> None:
    assert _read(reader, wire.INLINE + wire.pack(_request(), []))[0] == 0
    code, output = _read(reader, wire.INLINE + wire.pack(_request(**changed), []))
    assert code == 3 and b"the request cannot be read" in output
