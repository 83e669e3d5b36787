"""Children are limited exactly; threads are no children, and are bounded too."""

from __future__ import annotations

import pytest

from actum import Outcome
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

COUNT = """
import os, time
made = 0
try:
    for _ in range(150):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        made += 1
except BlockingIOError:
    pass
print(made)
os.kill(0, 9)
"""


@pytest.mark.req("000-20", "000-42", "004-3")
@pytest.mark.parametrize("most", [1, 2, 10, 100])
def test_exactly_as_many_children_as_allowed(jail: Jail, most: int) -> None:
    program = COUNT.replace("os.kill(0, 9)", "os._exit(0)").replace(
        "print(made)", "print(made, flush=True)"
    )
    assert (
        int(jail.outside_python(program.replace("150", str(most + 1)).replace("30", "0.1")))
        == most + 1
    )
    result = jail.python(program, limits={"sandbox.processes.max_children": most})
    assert jail.said(result) == str(most)
    assert {row.limit: row.tripped for row in result.enforcement}["max_children"]


@pytest.mark.req("000-21", "000-42")
@pytest.mark.parametrize(
    "limits",
    [
        {"sandbox.processes.allow_fork": False},
        {"sandbox.processes.allow_fork": False, "sandbox.processes.max_children": 50},
        {"sandbox.processes.max_children": 0},
    ],
)
def test_no_child_at_all_where_none_is_allowed(jail: Jail, limits: dict[str, object]) -> None:
    program = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def raw(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result == 0: os._exit(0)
    print('no' if result < 0 else 'MADE')
raw(57)
raw(56, 17, 0, 0, 0, 0)
raw(435, ctypes.create_string_buffer(bytes(32) + b'\\x11' + bytes(55)), 88)
try: os.fork(); print('MADE')
except OSError as error: print('no')
try: os.posix_spawn('/bin/true', ['true'], {}); print('MADE')
except OSError as error: print('no')
"""
    assert "MADE" in jail.outside_python(program)
    result = jail.python(program, limits=limits)
    assert set(jail.said(result).split()) == {"no"}
    assert "fork" in {denial.kind for denial in result.denials}


@pytest.mark.req("000-21")
def test_threads_are_legal_where_children_are_not(jail: Jail) -> None:
    program = """
import threading
done = []
threads = [threading.Thread(target=done.append, args=(n,)) for n in range(40)]
for t in threads: t.start()
for t in threads: t.join()
print(len(done))
"""
    result = jail.python(program, limits={"sandbox.processes.allow_fork": False})
    assert jail.said(result) == "40"


def test_threads_are_bounded(jail: Jail) -> None:
    program = """
import threading
stop, made = threading.Event(), 0
try:
    for _ in range(1000):
        threading.Thread(target=stop.wait, daemon=True).start(); made += 1
except RuntimeError:
    pass
print(made, flush=True)
import os; os._exit(0)
"""
    result = jail.python(program)
    assert 200 <= int(jail.said(result)) <= 256
    assert "thread" in {denial.kind for denial in result.denials}


MAKERS = """
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
static atomic_int made, failed;
static void *nothing(void *x) { return x; }
static void *maker(void *x)
{
    for (int each = 0; each < 150; each++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, nothing, 0)) failed++;
        else { made++; pthread_join(thread, 0); }
    }
    return x;
}
int main(void)
{
    pthread_t makers[12];
    for (int each = 0; each < 12; each++)
        if (pthread_create(&makers[each], 0, maker, 0)) return 1;
    for (int each = 0; each < 12; each++) pthread_join(makers[each], 0);
    printf("%d %d\\n", made, failed);
}
"""


@pytest.mark.req("000-21")
def test_many_may_make_threads_at_once_where_no_child_leaves_room(jail: Jail) -> None:
    """A granted request keeps its room until the thread exists, whatever other requests come."""
    jail.outside(f"gcc -O1 -pthread -xc -o many - <<'END'\n{MAKERS}\nEND")
    for _ in range(3):
        result = jail.sh("exec ./many", limits={"sandbox.processes.max_children": 0})
        assert jail.said(result) == "1800 0"


TRADE = """
import os, threading, time
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(150)]
for t in threads: t.start()
BUSY
stop.set()
for t in threads: t.join()
for _ in range(150):
    try:
        if os.fork() == 0: time.sleep(30); os._exit(0)
    except OSError: break
def count():
    living = 0
    for name in os.listdir('/proc'):
        if name.isdigit() and int(name) not in (1, os.getpid()):  # 1: the init
            try: living += open(f'/proc/{name}/stat').read().rpartition(')')[2].split()[0] != 'Z'
            except OSError: pass
    return living
until = time.monotonic() + 10
time.sleep(0.5)
while (living := count()) > 3 and time.monotonic() < until: time.sleep(0.5)
print(living, flush=True)
os._exit(0)
"""


@pytest.mark.req("000-20", "000-42")
@pytest.mark.parametrize("init", ["idle", "kept busy"])
def test_the_room_of_ended_threads_is_not_traded_for_children(jail: Jail, init: str) -> None:
    busy = """
import ctypes
trace = ctypes.CDLL(None).ptrace
def ask():
    while True: trace(0, 0, 0, 0); time.sleep(0.001)
threading.Thread(target=ask, daemon=True).start()
"""
    program = TRADE.replace("BUSY", busy if init == "kept busy" else "")
    result = jail.python(program, limits={"sandbox.processes.max_children": 3})
    assert int(jail.said(result)) <= 3


HIDDEN = """
import ctypes, os, threading, time
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(100)]
for t in threads: t.start()
HIDE
stop.set()
for t in threads: t.join()
made = gone = 0
for _ in range(100):
    try:
        if os.fork() == 0: time.sleep(30); os._exit(0)
        made += 1
    except OSError: break
until = time.monotonic() + 10
while made - gone > 3 and time.monotonic() < until:
    time.sleep(0.5)
    while os.waitpid(-1, os.WNOHANG)[0]: gone += 1
time.sleep(0.5)
while os.waitpid(-1, os.WNOHANG)[0]: gone += 1
print(made, gone, flush=True)
os._exit(0)
"""


@pytest.mark.req("000-20", "000-42")
@pytest.mark.parametrize("hide", ["pass", "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"])
def test_children_that_hide_from_the_init_are_counted(jail: Jail, hide: str) -> None:
    """Not dumpable, a fork of an interpreter that was never executed is in nobody's /proc."""
    fields = {"sandbox.processes.max_children": 3}
    for _ in range(3):  # the first teaches the spawner
        result = jail.runtime.python(HIDDEN.replace("HIDE", hide), set=fields)
        made, gone = map(int, jail.said(result).split())
        assert made - gone == 3


def test_a_fork_bomb_leaves_the_host_untouched_and_ends(jail: Jail) -> None:
    # The first shell stays: its end is the end of the bomb, however small that is by then.
    result = jail.sh("f() { f | f & }; f; while :; do (:); done", timeout="5s")
    assert result.outcome in {Outcome.TOOL_ERROR, Outcome.TIMED_OUT}
    assert {row.limit: row.tripped for row in result.enforcement}["max_children"]
    assert jail.said(jail.sh("echo next")) == "next"
