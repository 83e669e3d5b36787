"""Children: one call each, behind every wall, for root and for an ordinary user alike."""

from __future__ import annotations

import json
import os
import pwd
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pure_house import PureHouse, wrapped

from actum.errors import SandboxUnavailable
from actum.executors import child_frames, runs
from actum.executors.model import ActionResult, Declaration, Limits
from actum.executors.pool import Child, End, Pool, Reply, Surroundings
from actum.value import replace
from hostile.jail import until

LIMITS = Limits(timeout_ms=2_000, max_payload_bytes=10_000, max_depth=10, max_list_items=100)
DECLARED = Declaration(executor_id="x", version="1.0.0", capabilities=(), limits=LIMITS)
SOURCE = """
class X:
    executor_id, version, capabilities = "x", "1.0.0", []
    limits = dict(timeout_ms=2000, max_payload_bytes=10000, max_depth=10, max_list_items=100)

    def execute(self, req):
        {body}
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    opened = Pool()
    yield opened
    opened.close()


def _frame(pool: Pool, body: str) -> child_frames.Request:
    code = runs.compile_source(pool, SOURCE.format(body=body).encode())
    return runs.call_frame(
        code, DECLARED, action="x", payload=b"{}", trace_id="t", at=datetime.now(UTC)
    )


def _prepared(pool: Pool, code: bytes) -> Child:
    """`prepare` never waits; here a child is on its way."""
    deadline = time.monotonic() + 60
    while (child := pool.prepare(code)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return child


def _run(pool: Pool, body: str) -> runs.Ran:
    child, ran = runs.run(pool, _frame(pool, body), DECLARED, 60.0)
    child.finish()
    pool.refill()
    return ran


@pytest.mark.req("001-40", "001-41")
def test_one_call_leaves_no_trace_for_the_next(pool: Pool) -> None:
    body = "import re; re.mark = getattr(re, 'mark', 0) + 1; return re.mark"
    answers = [_run(pool, body).output for _ in range(8)]
    assert [answer.value if answer else None for answer in answers] == [1] * 8


@pytest.mark.req("001-18")
def test_addresses_and_hashes_are_the_same_in_every_child() -> None:
    body = "return [str(hash('a')), list({'x', 'y', 'z', 'w'}), str(id(None))]"
    found = set()
    for _ in range(2):
        pool = Pool(ready=1)
        ran = _run(pool, body)
        assert ran.output is not None
        found.add(ran.output.encoded)
        pool.close()
    assert len(found) == 1


OBJECTS = """
        class Each: pass
        each = [Each() for _ in range(40)]
        places = [object(), [], {}, "a" * 50, bytes(3000), bytearray(100_000), Each, lambda: 1]
        order = [each.index(one) for one in set(each)]
        return [str(id(place)) for place in places] + order"""


@pytest.mark.req("001-18", "001-40")
def test_what_depends_on_addresses_is_the_same_however_many_calls_came_before() -> None:
    """Otherwise a set of objects has another order in every call, and shows what others did."""
    found = set()
    for descriptors in (0, 20, 300):  # the host's own descriptors must not show either
        opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(descriptors)]
        pool = Pool()
        frame = _frame(pool, OBJECTS)

        def answer(pool: Pool = pool, frame: child_frames.Request = frame) -> None:
            child, ran = runs.run(pool, frame, DECLARED, 60.0)
            found.add(ran.output.encoded if ran.output else repr(ran).encode())
            pool.retire(child)
            pool.refill()

        for _ in range(12):
            answer()
        threads = [threading.Thread(target=answer) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for body in ("raise ValueError", "import os; os._exit(1)", "open('/x')", "return 'x' * 9"):
            _run(pool, body)
        answer()
        pool.close()
        for descriptor in opened:
            os.close(descriptor)
    assert len(found) == 1, found
    assert len(json.loads(found.pop())) == 48


@pytest.mark.req("001-18")
def test_what_depends_on_addresses_is_the_same_however_a_request_arrives(pool: Pool) -> None:
    head, body = _frame(pool, OBJECTS.replace("return", f"long = '{'y' * 90_000}'; return"))
    found = set()
    for cuts in ((), (5,), (21, 22), (10_000, 80_000), (len(head), len(head) + 9)):
        *first, last = _cut(head + body, cuts)
        child = pool._take()
        for part in first:
            os.write(child._data, part)
            time.sleep(0.02)  # a reader that sees all at once only makes this test weaker
        reply = child.call((last, b""), timeout_s=60, max_reply_bytes=10_000)
        found.add((reply.end, reply.body))
        child.finish()
        pool.refill()
    assert len(found) == 1, found
    assert found.pop()[0] is End.REPLIED


def _cut(whole: bytes, cuts: tuple[int, ...]) -> list[bytes]:
    return [whole[begin:end] for begin, end in zip((0, *cuts), (*cuts, None), strict=True)]


@pytest.mark.req("001-51")
def test_not_a_line_of_a_prepared_executor_is_run_before_the_rest_has_come(pool: Pool) -> None:
    code = runs.compile_source(pool, b"import os; os.write(0, b'I run')")
    frame = runs.call_frame(
        code, DECLARED, action="x", payload=b"{}", trace_id="t", at=datetime.now(UTC)
    )
    child = _prepared(pool, frame[0])
    watch = select.poll()
    watch.register(child._data, select.POLLIN)
    assert watch.poll(300) == []
    os.write(child._data, frame[1])
    assert watch.poll(60_000)
    assert os.read(child._data, 5) == b"I run"
    child.finish()
    pool.refill()


def test_a_prepared_child_answers_as_any_other(pool: Pool) -> None:
    frame = _frame(pool, "return 'x' * 9_000")
    child = _prepared(pool, frame[0])
    used, ran = runs.run(pool, frame, DECLARED, 60.0, child)
    assert used is child and ran.output is not None and ran.output.value == "x" * 9_000
    pool.retire(child)


def test_code_that_does_not_fit_into_the_line_is_sent_with_the_rest(pool: Pool) -> None:
    frame = _frame(pool, "return len('" + "y" * 3_000_000 + "')")
    child = _prepared(pool, frame[0])
    assert 0 < child._prepared < 3_000_000
    used, ran = runs.run(pool, frame, DECLARED, 60.0, child)
    assert ran.output is not None and ran.output.value == 3_000_000
    used.finish()
    pool.refill()


def test_a_retired_child_of_an_earlier_zygote_harms_no_child_of_the_next() -> None:
    pool = Pool(ready=1)
    frame = _frame(pool, "return 1")
    old, _reply = pool.call(frame, timeout_s=60, max_reply_bytes=100)
    assert pool._process is not None
    os.kill(pool._process.pid, signal.SIGKILL)
    pool._process.wait()
    new = pool._take()
    new.number = old.number  # as if the new one counted the same
    pool.retire(old)
    reply = new.call(frame, timeout_s=60, max_reply_bytes=100)
    assert reply.end is End.REPLIED
    new.finish()
    pool.close()


def test_every_wall_is_up_for_root(pool: Pool) -> None:
    if os.geteuid() != 0:
        pytest.skip("this test is about root")
    assert set(pool.walls) == {
        *("seccomp", "rlimits", "namespaces", "empty root", "landlock", "identity"),
    }


@pytest.mark.req("001-45")
def test_at_the_deadline_the_process_is_killed_and_gone(pool: Pool) -> None:
    frame = _frame(pool, f"{LARGE}\n        while True: pass")
    calls: list[tuple[Child, Reply]] = []
    caller = threading.Thread(
        target=lambda: calls.append(pool.call(frame, timeout_s=5.0, max_reply_bytes=100))
    )
    caller.start()
    while not (computing := _large(pool)):
        assert caller.is_alive()
        time.sleep(0.01)
    caller.join()
    ((child, reply),) = calls
    assert reply.end is End.TIMED_OUT
    child.finish()
    assert not Path(f"/proc/{computing}").exists()
    pool.refill()


@pytest.mark.req("001-45")
def test_an_executor_that_was_too_slow_does_not_go_on_after_its_call(own_house: PureHouse) -> None:
    limits = replace(LIMITS, timeout_ms=4_000)
    body = f"def execute(req):\n    {LARGE}\n    while True:\n        pass\n"
    own_house.put("endless", wrapped("endless", body, limits), limits)
    own_house.reopen()
    results: list[ActionResult] = []
    caller = threading.Thread(target=lambda: results.append(own_house.act("endless")))
    caller.start()
    pool = own_house.plane.pool
    until(lambda: pool._process is not None and _large(pool), "the executor at work")
    caller.join()
    assert [each.reason_codes for each in results] == [("EXECUTOR_TIMEOUT",)]
    until(lambda: not _large(pool), "the end of the executor")


@pytest.mark.req("001-45")
def test_a_child_that_goes_on_after_its_answer_is_ended(pool: Pool) -> None:
    frame = _frame(
        pool, f"import os; {LARGE}; os.write(0, b'\\x02\\0\\0\\0\\0')\n        while True: pass"
    )
    child, reply = pool.call(frame, timeout_s=60, max_reply_bytes=100)
    assert (reply.end, reply.kind) == (End.REPLIED, child_frames.NOTHING)
    computing = _large(pool)
    assert computing
    pool.retire(child)
    until(lambda: not Path(f"/proc/{computing}").exists(), "the end of the child")
    pool.refill()


#: What the child of one call holds in memory, and by which it is found among the others.
LARGE = "large = bytearray(100 << 20)"


def _large(pool: Pool) -> int:
    """The child that runs `LARGE`; 0 before it does."""
    pages = (50 << 20) // resource.getpagesize()
    sizes = {pid: int(_proc(pid, "statm").partition(" ")[0] or 0) for pid in _processes(pool)}
    least = min(filter(None, sizes.values()), default=0)  # one that is ending has no memory
    return next((pid for pid, size in sizes.items() if size > least + pages), 0)


def _processes(pool: Pool) -> set[int]:
    """Every process below the pool's own."""
    assert pool._process is not None
    found: set[int] = set()
    unseen = [pool._process.pid]
    while unseen:
        pid = unseen.pop()
        children = _proc(pid, f"task/{pid}/children").split()
        unseen += map(int, children)
        found.update(map(int, children))
    return found


def _proc(pid: int, name: str) -> str:
    """A file of a process; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_a_child_is_used_once(pool: Pool) -> None:
    code = runs.compile_source(pool, b"x = 1")
    child, reply = pool.call(
        child_frames.request(child_frames.DESCRIBE, code, b""), timeout_s=60, max_reply_bytes=10_000
    )
    assert reply.end is End.REPLIED
    child.finish()
    with pytest.raises(OSError, match="Bad file descriptor"):
        child.call((b"again", b""), timeout_s=1, max_reply_bytes=10)
    pool.refill()


def test_a_request_larger_than_any_buffer_arrives_whole(pool: Pool) -> None:
    code = b"x = '" + b"y" * 3_000_000 + b"'"
    compiled = runs.compile_source(pool, code)
    assert len(compiled) > 3_000_000


def test_a_zygote_that_was_killed_is_replaced() -> None:
    pool = Pool(ready=1)
    assert _run(pool, "return 1").output is not None
    assert pool._process is not None
    os.kill(pool._process.pid, signal.SIGKILL)
    pool._process.wait()
    again = _run(pool, "return 2")
    assert again.output is not None and again.output.value == 2
    pool.close()


def test_a_child_whose_zygote_is_gone_is_replaced_before_anything_is_sent() -> None:
    pool = Pool(ready=1)
    assert _run(pool, "return 1").output is not None
    assert pool._server is not None
    pool._server.shutdown(socket.SHUT_WR)  # it ends, and the child that it owes never comes
    while pool._stock:
        pool._stock.popleft().discard()
    pool._ordered = 0
    while pool._server.recv(64):
        pass
    again = _run(pool, "return 2")
    assert again.output is not None and again.output.value == 2
    pool.close()


def test_a_zygote_that_dies_during_a_call_is_our_fault_and_not_the_executors() -> None:
    pool = Pool(ready=1)
    frame = _frame(pool, f"{LARGE}\n        while True: pass")
    assert pool._process is not None
    zygote = pool._process.pid

    def kill() -> None:
        until(lambda: _large(pool), "the call")
        os.kill(zygote, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(SandboxUnavailable, match="died during the call"):
        pool.call(frame, timeout_s=120, max_reply_bytes=100)
    killer.join()
    pool.close()


def test_a_zygote_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no luck today')")
    monkeypatch.setattr("actum.executors.pool._COMMAND", command)
    pool = Pool()
    with pytest.raises(SandboxUnavailable, match="no luck today"):
        pool.ask((b"", b""), timeout_s=1, max_reply_bytes=1)
    pool.refill()  # silent: the next call reports it
    pool.close()


def test_closing_ends_everything() -> None:
    pool = Pool(ready=3)
    pool.refill()
    assert _run(pool, "return 1").status == "SUCCESS"
    alive = _processes(pool)
    assert len(alive) >= 1
    pool.close()
    assert [pid for pid in alive if Path(f"/proc/{pid}/exe").exists()] == []


def test_no_descriptor_of_the_host_is_lost(pool: Pool) -> None:
    for _ in range(3):
        _run(pool, "return 1")
    before = len(os.listdir("/proc/self/fd"))
    for body in ("return 1", "raise ValueError", "import os; os._exit(1)", "open('/etc/passwd')"):
        _run(pool, body)
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_threads_share_one_pool(pool: Pool) -> None:
    answers: list[object] = []

    def work(number: int) -> None:
        ran = _run(pool, f"return {number}")
        answers.append(ran.output.value if ran.output else ran)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers, key=str) == sorted(range(12), key=str)


def test_surroundings_differ_only_where_the_review_gate_asks_for_it() -> None:
    body = "import time; return [time.localtime(0).tm_hour, list({'a', 'b', 'c', 'd', 'e'})]"
    plain, other = (
        Pool(ready=1),
        Pool(ready=1, surroundings=Surroundings(hash_seed=7, time_zone="Asia/Tokyo")),
    )
    first, second = _run(plain, body), _run(other, body)
    plain.close()
    other.close()
    assert first.output is not None and second.output is not None
    assert first.output.value[0] == 0
    assert second.output.value[0] == 9
    assert first.output.value[1] != second.output.value[1]


AS_USER = """
import json, sys, threading
sys.path[:0] = json.loads(sys.argv[1])
from pathlib import Path
from pure_house import PureHouse, wrapped
said = {}
with PureHouse(Path(sys.argv[2])) as house:
    for file in sorted(Path(sys.argv[3]).glob("*.py")):
        name = "hostile_" + file.stem
        house.put(name, wrapped(name, file.read_text()))
    house.reopen()
    starter = threading.Thread(target=lambda: house.plane.pool.walls)
    starter.start()
    starter.join()
    zygote = house.plane.pool._process.pid
    said["walls"] = list(house.plane.pool.walls)
    for file in sorted(Path(sys.argv[3]).glob("*.py")):
        result = house.act("hostile_" + file.stem, {"text": "t", "password": "pass-word-pass"})
        said[file.stem] = " ".join([result.status.value, *result.reason_codes])
    said["outlived its starter"] = house.plane.pool._process.pid == zygote
print(json.dumps(said))
"""


@pytest.mark.req("001-20", "001-21", "001-23", "001-24", "001-25")
@pytest.mark.parametrize("user_namespaces", [True, False])
def test_an_ordinary_user_gets_the_same_walls(tmp_path: Path, user_namespaces: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    user = pwd.getpwnam("nobody").pw_uid
    folder = Path("/tmp") / f"actum-user-{os.getpid()}-{user_namespaces}"
    folder.mkdir(mode=0o700)
    hostile = Path(__file__).parents[2] / "security" / "executors"
    chosen = folder / "hostile"
    chosen.mkdir()
    for file in (hostile / "hostile").glob("*.py"):
        if file.stem.startswith(("file", "net", "process", "clock_t", "entropy", "kernel", "env")):
            shutil.copy(file, chosen)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user)
    program = AS_USER
    if not user_namespaces:  # a host that forbids them to users, as some distributions do
        program = (
            "import ctypes\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "libc.prctl(38, 1, 0, 0, 0)\n" + _NO_USER_NAMESPACES + AS_USER
        )
    paths = [path for path in sys.path if path]
    try:
        ended = subprocess.run(
            [
                sys.executable,
                "-c",
                program,
                json.dumps([str(hostile), *paths]),
                str(folder / "home"),
                str(chosen),
            ],
            user=user,
            group=user,
            extra_groups=[],
            env={"HOME": str(folder), "CANARY": "x"},
            cwd="/",
            capture_output=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr.decode()
    finally:
        shutil.rmtree(folder)
    said = json.loads(ended.stdout)
    assert said.pop("outlived its starter")  # a thread's end is not its process's end
    walls = set(said.pop("walls"))
    assert {"seccomp", "rlimits", "landlock"} <= walls
    assert ("namespaces" in walls) == user_namespaces
    assert len(said) > 50
    for name, ended_as in said.items():
        first_line = (hostile / "hostile" / f"{name}.py").read_text().splitlines()[0]
        assert ended_as == first_line.removeprefix("# ends: "), name


_NO_USER_NAMESPACES = """
import struct
def forbid_user_namespaces():
    instructions = [
        (0x20, 0, 0, 0),
        (0x15, 0, 3, 272),
        (0x20, 0, 0, 16),
        (0x45, 0, 1, 0x10000000),
        (0x06, 0, 0, 0x00050001),
        (0x06, 0, 0, 0x7FFF0000),
    ]
    program = b"".join(struct.pack("HBBI", *each) for each in instructions)
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(buffer))
    assert libc.syscall(317, 1, 0, fprog) == 0
forbid_user_namespaces()
"""


_COUNTER = """
import ctypes, os
from actum.executors import vdso
libc = ctypes.CDLL(None)
def counter():
    mode = ctypes.c_int(-1)
    libc.prctl(25, ctypes.byref(mode), 0, 0, 0)
    return mode.value
before = counter()
vdso.close_clock()  # otherwise the next lock that is taken would read the counter
vdso.close_cycle_counter()
print(before, counter(), flush=True)
if os.fork() == 0:
    print(counter(), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.req("001-25")
def test_the_cycle_counter_is_closed_for_a_process_and_its_children() -> None:
    said = subprocess.run([sys.executable, "-c", _COUNTER], capture_output=True, check=True)
    assert said.stdout.split() == [b"1", b"2", b"2"]


_PAGES = """
import ctypes, os, signal, time
from actum.executors import vdso
def pages():
    with open("/proc/self/maps") as maps:
        return [line.split() for line in maps if line.rstrip().endswith(("[vvar]", "[vdso]"))]
def ended(act):
    if (pid := os.fork()) == 0:
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.wait()[1])
(clock, *_), (code, *_) = pages()
start, end = (int(part, 16) for part in clock.split("-"))
def read(): return ctypes.string_at(start, 512)
def seen():
    first = read()
    while read() == first: pass  # the kernel changes it at every tick
print(ended(seen))
print(vdso.close_clock() > 2, pages())
print(ended(seen) == -signal.SIGSEGV)
vdso_at = int(code.split("-")[0], 16)
print(ended(lambda: ctypes.CFUNCTYPE(ctypes.c_int)(vdso_at)()) == -signal.SIGTRAP)
before, slept = time.monotonic(), time.sleep(0.02)
print(time.monotonic() > before, time.time() > 1e9, time.perf_counter() > 0)
print(time.clock_getres(time.CLOCK_MONOTONIC) > 0)
"""


@pytest.mark.req("001-25")
def test_the_pages_that_hold_the_time_are_unmapped() -> None:
    """Before, they are read without a system call; after, libc asks the kernel."""
    said = subprocess.run(
        [sys.executable, "-c", _PAGES], capture_output=True, check=False, text=True
    )
    assert said.stdout.splitlines() == [
        "0",
        "True []",
        "True",
        "True",
        "True True True",
        "True",
    ], said.stderr


@pytest.mark.req("001-25")
def test_no_process_of_the_pure_plane_has_them(pool: Pool) -> None:
    assert _run(pool, "return 1").output
    looked = 0
    for pid in _processes(pool):
        try:
            mapped = Path(f"/proc/{pid}/maps").read_text()
        except OSError:  # an ordinary user may not look at what is not dumpable
            continue
        assert "[vvar" not in mapped
        assert "[vdso]" not in mapped
        looked += bool(mapped)
    assert looked or os.geteuid() != 0


@pytest.mark.req("001-25")
def test_the_old_way_to_the_clock_is_closed_too(pool: Pool) -> None:
    body = """classes = [object]
        for each in classes:
            classes += [one for one in type.__subclasses__(each) if one not in classes]
        ctypes = next(one for one in classes if one.__name__ == "CDLL").__init__.__globals__
        time_at = ctypes["CFUNCTYPE"](ctypes["c_long"], ctypes["c_void_p"])(0xFFFFFFFFFF600400)
        return time_at(None)"""
    # The kernel shows this page to the filter; where it has no such page, there is a fault.
    assert _run(pool, body).reason in ("POLICY_VIOLATION", "EXECUTOR_EXCEPTION")


@pytest.mark.req("001-18")
def test_no_library_with_its_own_source_of_randomness_is_mapped(pool: Pool) -> None:
    assert _run(pool, "import hashlib; return hashlib.sha256(b'').hexdigest()[:6]").output
    for mapped in [_proc(pid, "maps") for pid in _processes(pool)]:
        assert "python" in mapped or not mapped
        assert "libcrypto" not in mapped
