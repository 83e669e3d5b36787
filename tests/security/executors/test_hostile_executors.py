"""Every hostile executor ends as promised, leaves nothing behind, and the next call is served.

Each file below `hostile/` says in its first line how it must end. They are approved here by a
reviewer who looks at nothing, so the gate protects nobody: only the walls do.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

import pytest
from pure_house import LIMITS, PureHouse, wrapped

from actum.contract.outcome import ActionStatus
from hostile.jail import until

HOSTILE = sorted((Path(__file__).parent / "hostile").glob("*.py"))
SECRET = "correct-horse-battery-staple"
TEXT = "canary-text-93f1"
PAYLOAD = {"text": TEXT, "password": SECRET}

#: Which rows a file proves, by the longest beginning of its name that is listed.
ROWS = {
    "file": ("001-20", "001-26", "001-35"),
    "net": ("001-21", "001-37"),
    "db": ("001-22", "001-39"),
    "process": ("001-23",),
    "thread": ("001-23", "001-40"),
    "signal": ("001-40",),
    "env": ("001-24", "001-26"),
    "env_write": ("001-40",),
    "place": ("001-25", "001-26"),
    "place_chdir": ("001-40",),
    "place_umask": ("001-40",),
    "place_setlocale": ("001-25", "001-40"),
    "clock": ("001-25", "001-26"),
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
        marks = pytest.mark.req("001-51", *_rows(file.stem))
        yield pytest.param(file, id=file.stem, marks=marks)


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


@pytest.fixture
def own_house(tmp_path: Path) -> Iterator[PureHouse]:
    with PureHouse(tmp_path / "own") as opened:
        yield opened


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
    written = [each for each in house.records(result) if each["event_type"] == "action_audit"]
    assert [(each["status"], each["output_digest"]) for each in written] == [
        ("PENDING", None),
        (status, result.output_digest),
    ]
    assert _serves(house)


def _serves(house: PureHouse) -> bool:
    """The pipeline, the zygote and the modules in it are as they were."""
    result = house.act("text_process", {"text": "still here"})
    return house.plane.value(result) == "STILL HERE"


@pytest.mark.req("001-20", "001-35")
def test_none_of_them_left_a_file() -> None:
    left = [path for path in Path("/tmp").iterdir() if path.name.startswith("actum-hostile")]
    assert left == []


def test_none_of_them_left_a_process(house: PureHouse) -> None:
    house.act("hostile_loop_endless", PAYLOAD)
    process = house.plane.pool._process
    assert process is not None
    living = _below(process.pid)
    assert living
    house.plane.close()
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in living), "their end")


def _below(top: int) -> set[int]:
    """A process and every descendant of it."""
    found, unseen = {top}, [top]
    while unseen:
        pid = unseen.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            unseen += map(int, children)
            found.update(map(int, children))
    return found


#: Ways to reach a listener at `req.payload["port"]`; outside, each of them does.
_HTTP = {
    "http.client": """
def execute(req):
    import http.client
    line = http.client.HTTPConnection("127.0.0.1", req.payload["port"], timeout=10)
    line.request("GET", "/page")
    return line.getresponse().read().decode()
""",
    "urlopen": """
def execute(req):
    import urllib.request
    return urllib.request.urlopen(f"http://127.0.0.1:{req.payload['port']}/page").read().decode()
""",
    "by hand": r"""
import _socket

def execute(req):
    line = _socket.socket()
    line.settimeout(10)
    line.connect(("127.0.0.1", req.payload["port"]))
    line.send(b"GET /page HTTP/1.0\r\n\r\n")
    return "".join(iter(lambda: line.recv(1000).decode(), ""))
""",
}
_RPC = {
    "xmlrpc.client": """
def execute(req):
    import xmlrpc.client
    return xmlrpc.client.ServerProxy(f"http://127.0.0.1:{req.payload['port']}/").page()
""",
    "by hand": r"""
import _socket

def execute(req):
    line = _socket.socket()
    line.settimeout(10)
    line.connect(("127.0.0.1", req.payload["port"]))
    call = b"<methodCall><methodName>page</methodName></methodCall>"
    line.send(b"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(call), call))
    return "".join(iter(lambda: line.recv(1000).decode(), ""))
""",
}
_CALLERS = [
    pytest.param(body, id=f"{kind} {way}", marks=pytest.mark.req("001-21", row))
    for kind, row, ways in (("http", "001-36", _HTTP), ("rpc", "001-38", _RPC))
    for way, body in ways.items()
]


@pytest.mark.parametrize("body", _CALLERS)
def test_a_listener_sees_no_connection_of_an_executor(own_house: PureHouse, body: str) -> None:
    own_house.put("caller", wrapped("caller", body))
    own_house.reopen()
    with _listening() as (port, seen):
        result = own_house.act("caller", {"port": port})
        if "_socket" in body:  # the module is there, and the system call ends the process
            ended = (ActionStatus.BLOCKED, ("POLICY_VIOLATION",))
        else:  # the module cannot be loaded
            ended = (ActionStatus.FAILED, ("EXECUTOR_EXCEPTION",))
        assert (result.status, result.reason_codes) == ended
        assert seen == []
        # The control: the same code outside reaches the same listener.
        outside = subprocess.run(
            [sys.executable, "-c", body + _OUTSIDE, str(port)], capture_output=True, text=True
        )
        assert ("the page" in outside.stdout, outside.stderr) == (True, "")
        assert len(seen) == 1


_OVER_A_UNIX_SOCKET = r"""
import _socket

def execute(req):
    line = _socket.socket(_socket.AF_UNIX)
    line.settimeout(10)
    line.connect("\0" + req.payload["port"])
    line.send(b"call page")
    return line.recv(1000).decode()
"""


@pytest.mark.req("001-21", "001-38")
def test_a_listener_on_a_unix_socket_sees_no_call_of_an_executor(own_house: PureHouse) -> None:
    own_house.put("caller", wrapped("caller", _OVER_A_UNIX_SOCKET))
    own_house.reopen()
    name = f"actum-test-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        listener.setblocking(False)
        result = own_house.act("caller", {"port": name})
        ended = (ActionStatus.BLOCKED, ("POLICY_VIOLATION",))
        assert (result.status, result.reason_codes) == ended
        with pytest.raises(BlockingIOError):
            listener.accept()
        # The control: the same code outside is heard.
        listener.settimeout(60)
        words = [sys.executable, "-c", _OVER_A_UNIX_SOCKET + _OUTSIDE, name]
        outside = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        caller, _ = listener.accept()
        with caller:
            assert caller.recv(100) == b"call page"
            caller.send(b"the page")
        assert outside.communicate(timeout=60)[0] == "the page\n"


_OUTSIDE = """
import sys, types
port = int(sys.argv[1]) if sys.argv[1].isdigit() else sys.argv[1]
print(execute(types.SimpleNamespace(payload={"port": port})))
"""


@contextlib.contextmanager
def _listening() -> Iterator[tuple[int, list[object]]]:
    """(port, the peers that connected) of a listener that serves a page and a procedure."""
    seen: list[object] = []

    class Handler(SimpleXMLRPCRequestHandler):
        def setup(self) -> None:
            seen.append(self.client_address)
            super().setup()

        def do_GET(self) -> None:  # noqa: N802 -- the name that http.server calls
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"the page")

    with SimpleXMLRPCServer(("127.0.0.1", 0), Handler, logRequests=False) as server:
        server.register_function(lambda: "the page", "page")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1], seen
        finally:
            server.shutdown()
            thread.join()


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
