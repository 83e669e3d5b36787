"""An engine that lies is found out before the tool starts, or cannot change how the tool ends.

The engine is real. A proxy before its socket changes what it is asked for, and what it answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Runtime
from actum.runners.container import engine_api, started_container
from engines import Engine, images
from engines.proxy import AnotherContainer, Drops, Gone, Hangs, Late, Lie, Says

from .lab import RAN, Lab, lab

pytestmark = pytest.mark.sandbox

_ANSWER_S = 5.0
_SMALL = {"sandbox.memory_mb": 64, "sandbox.processes.max_children": 5}


def _writable(mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "ReadOnly": False} for each in mounts]


def _of_the_host(mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*mounts, {"Type": "bind", "Source": "/", "Target": "/srv", "ReadOnly": True}]


def _devices_of_the_host(mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*mounts, _bound("/dev", "/dev/more")]


def _processes_of_the_host(mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*mounts, _bound("/proc", "/dev/more")]


def _bound(source: str, target: str) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": True}


def _another_source(target: str, source: str) -> Any:
    return lambda mounts: [
        {**each, "Source": source} if each["Target"] == target else each for each in mounts
    ]


def _fewer(mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in mounts if not each["Target"].startswith("/proc/")]


def _without(word: str) -> Any:
    return lambda options: [each for each in options if word not in each]


#: What of HostConfig is replaced, and what of the rest.
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no limit on memory": ({"Memory": None, "MemorySwap": None}, {}),
    "eight times the memory": ({"Memory": 512 << 20, "MemorySwap": 512 << 20}, {}),
    "memory on swap": ({"MemorySwap": -1}, {}),
    "no limit on processes": ({"PidsLimit": None}, {}),
    "no limit on processors": ({"NanoCpus": None}, {}),
    "no limit on scratch": ({"Tmpfs": {}, "ReadonlyRootfs": False}, {}),
    "the network of the engine's host": ({"NetworkMode": "host", "Sysctls": None}, {}),
    "no filter of its own": ({"SecurityOpt": ["no-new-privileges"]}, {}),
    "new privileges": ({"SecurityOpt": _without("privileges")}, {}),
    "a writable root": ({"ReadonlyRootfs": False}, {}),
    "writable mounts": ({"Mounts": _writable}, {}),
    "a mount of the host's root": ({"Mounts": _of_the_host}, {}),
    "the devices of the host": ({"Mounts": _devices_of_the_host}, {}),
    "the host's table of processes": ({"Mounts": _processes_of_the_host}, {}),
    "scratch of the host": (
        {
            "Tmpfs": lambda found: {"/artifacts": found["/artifacts"]},
            "Mounts": lambda found: [*found, {**_bound("/dev/shm", "/tmp"), "ReadOnly": False}],
        },
        {},
    ),
    "a folder of the host in the place of another": (
        {"Mounts": _another_source("/etc", "/etc")},
        {},
    ),
    "no covers in /proc": ({"Mounts": _fewer, "MaskedPaths": []}, {}),
    "capabilities in reserve": ({"CapDrop": None}, {}),
    "all capabilities": ({"CapDrop": None, "CapAdd": ["ALL"]}, {}),
    "all privileges": ({"Privileged": True}, {}),
    "root": ({}, {"User": "0:0"}),
    "the processes of the engine's host": ({"PidMode": "host"}, {}),
    "the shared memory of the engine's host": ({"IpcMode": "host"}, {}),
    "a program that is not the init": ({}, {"Entrypoint": ["/usr/bin/sleep", "600"]}),
}


@pytest.fixture(autouse=True)
def _sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is not the init is waited for 30 s; here for less."""
    monkeypatch.setattr(started_container, "_HELLO_S", 10.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """An engine that hangs is waited for 30 s; here for less."""
    monkeypatch.setattr(engine_api, "ANSWER_S", _ANSWER_S)
    monkeypatch.setattr(started_container, "REMOVAL_S", _ANSWER_S)
    return _ANSWER_S


@pytest.fixture
def honest(tmp_path: Path, engine: Engine) -> Iterator[Lab]:
    with lab(tmp_path, engine) as found:
        yield found


def test_a_proxy_that_changes_nothing_is_no_obstacle(honest: Lab) -> None:
    """The positive control of this file."""
    answer = honest.ask("echo $((6 * 7))", limits=_SMALL)
    assert Lab.said(answer) == f"{RAN}\n42\n"
    assert "POST /containers/create" in honest.proxy.seen
    honest.until_nothing_is_left()


@pytest.mark.req("004-3", "004-19", "004-50", "000-176")
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_the_engine_replaces_and_claims_to_have(
    tmp_path: Path, engine: Engine, option: str
) -> None:
    """The tool never starts: refused by name, or a fault."""
    host, top = OPTIONS[option]
    with lab(tmp_path, engine, Drops(hidden=True, host=host, top=top)) as found:
        answer = found.ask("echo x > started", limits=_SMALL)
        assert not Lab.ran(answer), Lab.said(answer)
        assert "POST /containers/create" in found.proxy.seen, "nothing was lied about"
        assert not (found.jail.work / "started").exists()
        found.until_nothing_is_left()
        _is_closed(found)


@pytest.mark.req("004-19", "004-44")
@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("the devices of the host", "/dev/more is a file system of the host"),
        ("the host's table of processes", "/dev/more is a file system of the host"),
        ("a folder of the host in the place of another", "/etc is not "),
    ],
)
def test_files_of_the_host_are_told_apart(
    tmp_path: Path, engine: Engine, option: str, why: str
) -> None:
    host, top = OPTIONS[option]
    with lab(tmp_path, engine, Drops(hidden=True, host=host, top=top)) as found:
        assert why in Lab.said(found.ask("true"))


def _is_closed(found: Lab) -> None:
    """Whatever was opened in the audit log is closed, and everything verifies."""
    found.jail.runtime.close()
    with Runtime.open(found.jail.root, pool=False) as again:
        findings = again.verifier.verify_all()
    assert [each for each in findings if not each.passed] == []


_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"


def _said(body: bytes, claimed: int | None = None) -> bytes:
    length = len(body) if claimed is None else claimed
    return _OK + f"Content-Length: {length}\r\n\r\n".encode() + body


GARBAGE = {
    "nothing at all": b"",
    "no HTTP": b"\x00\xff\x01 garbage \r\n\r\n" * 9,
    "no JSON": _said(b"<html>"),
    "half a document": _said(b'{"Id": "abc', claimed=4_000),
    "a deep document": _said(b"[" * 100_000),
    "another type": _said(b"[1, 2, 3]"),
    "a number": _said(b"42"),
    "null": _said(b"null"),
    "wrong fields": _said(
        json.dumps({"Id": 5, "State": None, "HostConfig": [], "Name": {}}).encode()
    ),
    "a path as an id": _said(json.dumps({"Id": "../../images/prune"}).encode()),
    "an error without a reason": b"HTTP/1.1 500 E\r\nContent-Length: 0\r\n\r\n",
    "a redirect": b"HTTP/1.1 301 M\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n",
    "too much": _said(b'"' + b"x" * (32 << 20) + b'"'),
}
STEPS = (
    "GET /version",
    "GET /info",
    "GET /images/*/json",
    "POST /containers/create",
    "POST /containers/*/start",
    "GET /containers/*/json",
    "DELETE /containers/*",
    "GET /containers/json",
)

#: Steps whose answer decides nothing: the kernel is asked as well, or it is done again later.
_HARMLESS = (
    "GET /info",
    "DELETE /containers/*",
    "GET /containers/json",
    "POST /containers/*/start",
)


@pytest.mark.parametrize("step", STEPS)
def test_garbage_instead_of_an_answer(tmp_path: Path, docker: Engine, step: str) -> None:
    """One project per step; each kind of garbage once, and then an honest answer."""
    with lab(tmp_path, docker, Lie()) as found:
        for garbage in GARBAGE:
            found.proxy.seen.clear()
            found.proxy.lie = Says(step, GARBAGE[garbage])
            with Runtime.open(found.jail.root, pool=False) as runtime:
                found.jail.runtime, before = runtime, found.jail.runtime
                answer = found.ask("true")
                found.jail.runtime = before
            assert step in found.proxy.seen, f"{step} is not asked"
            if Lab.ran(answer):
                assert step in _HARMLESS, garbage
                assert Lab.said(answer) == f"{RAN}\n", garbage
        found.proxy.lie = Lie()  # from now on the engine is honest
        assert Lab.said(found.ask("true")) == f"{RAN}\n"
        found.jail.close()
        found.until_nothing_is_left()


@pytest.mark.parametrize("after", [False, True], ids=["before it acts", "after it acted"])
@pytest.mark.parametrize("step", [step for step in STEPS if step != "GET /containers/json"])
def test_an_engine_that_hangs(
    tmp_path: Path, docker: Engine, step: str, after: bool, impatient: float
) -> None:
    with lab(tmp_path, docker, Hangs(step, after=after)) as found:
        answer = found.ask("sleep 0.2", limits={"sandbox.timeout_ms": 2_000})
        assert step in found.proxy.seen
        # The tool's deadline, two answers that are waited for, and the work of a busy host.
        assert found.took_s < 2 + 2 * impatient + 10, (
            "the caller waits for an engine that does not answer"
        )
        if Lab.ran(answer):
            assert answer.outcome is Outcome.SUCCEEDED  # type: ignore[union-attr]
        found.proxy.lie = Lie()
        assert Lab.said(found.ask("true")) == f"{RAN}\n"
        found.jail.close()
        found.until_nothing_is_left()
        _is_closed(found)


def test_an_answer_after_the_deadline_is_no_answer(
    tmp_path: Path, docker: Engine, impatient: float
) -> None:
    with lab(tmp_path, docker, Late("POST /containers/create", impatient + 1)) as found:
        answer = found.ask("true")
        assert not Lab.ran(answer)
        found.proxy.lie = Lie()
        assert Lab.said(found.ask("true")) == f"{RAN}\n"
        found.jail.close()
        found.until_nothing_is_left()


def test_a_deadline_is_kept_without_the_engine(tmp_path: Path, engine: Engine) -> None:
    """From the start of the container on no request is answered: the init ends the tool."""
    with lab(tmp_path, engine, Gone("DELETE /containers/*")) as found:
        answer = found.ask(
            "trap '' TERM; (trap '' TERM; setsid sleep @MARK@ &); sleep @MARK@; sleep @MARK@",
            limits={"sandbox.timeout_ms": 1_500},
        )
        assert Lab.ran(answer)
        assert answer.outcome is Outcome.TIMED_OUT  # type: ignore[union-attr]
        assert found.took_s < 1.5 + 10
        assert found.left()["processes"] == []


def test_the_container_of_someone_else_is_neither_used_nor_removed(
    tmp_path: Path, engine: Engine
) -> None:
    image = engine.import_image(images.of_host(), "tests/innocent")
    asked = {"Image": image, "Cmd": ["sleep", "600"], "HostConfig": {"NetworkMode": "none"}}
    innocent = engine.call("POST", "/containers/create", asked)["Id"]
    try:
        engine.call("POST", f"/containers/{innocent}/start")
        with lab(tmp_path, engine, AnotherContainer(innocent)) as found:
            answer = found.ask("echo x > started")
            assert not (found.jail.work / "started").exists()
            assert not Lab.ran(answer)
            assert engine.inspect(innocent)["State"]["Running"], "it ended a container of others"
            found.jail.close()
            found.until_nothing_is_left()
        assert engine.inspect(innocent)["State"]["Running"]
    finally:
        engine.call("DELETE", f"/containers/{innocent}", force=True)


@pytest.mark.parametrize(
    "version",
    [
        {"ApiVersion": "99.9", "MinAPIVersion": "99.0"},
        {"ApiVersion": "1.12", "MinAPIVersion": "1.12"},
        {"ApiVersion": "../..", "MinAPIVersion": ""},
        {"ApiVersion": None},
    ],
)
def test_a_version_that_the_engine_does_not_speak(
    tmp_path: Path, docker: Engine, version: dict[str, Any]
) -> None:
    class Versions(Lie):
        def answer(self, request: Any, answer: Any, proxy: Any) -> None:
            if request.step == "GET /version":
                answer.document = {**answer.document, **version}

    with lab(tmp_path, docker, Versions()) as found:
        answer = found.ask("true")
        assert not Lab.ran(answer) or Lab.said(answer) == f"{RAN}\n"
        found.jail.close()
        found.until_nothing_is_left()
