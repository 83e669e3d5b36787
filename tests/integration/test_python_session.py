"""One interpreter, many calls: state is kept, every call is an execution, nothing outlives it."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Refused, Result, Runtime
from actum.runners.base import Cancel
from hostile.jail import alive, marker, sleeps, until, wake

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def rt() -> Iterator[Runtime]:
    with Runtime.temporary() as runtime:
        yield runtime


def statement(rt: Runtime, receipt_id: str) -> dict[str, Any]:
    envelope = json.loads(rt.services.receipts.export(receipt_id).read_bytes())
    found: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))
    return found


def verifies(rt: Runtime) -> bool:
    return all(finding.passed for finding in rt.verifier.verify_all())


def told(result: Result) -> tuple[Outcome, str]:
    assert result.result is not None, result.violations
    return result.outcome, result.result.stdout


def test_names_files_and_modules_are_there_for_the_next_call(rt: Runtime) -> None:
    with rt.python_session(params={"n": 5}, files={"a/b.txt": b"hi"}, preload=["math"]) as s:
        assert s.run("x = n + 1").output is None
        assert told(s.run("print(x)")) == (Outcome.SUCCEEDED, "6\n")
        assert s.run(
            "import math, sys\n[open('a/b.txt').read(), 'math' in sys.modules]"
        ).output == [
            "hi",
            True,
        ]
        s.run("def f(y):\n    return y * x\nopen('made', 'w').write('by two')")
        assert s.run("f(y)", params={"y": 7}).output == 42
        assert s.run("open('made').read()").output == "by two"


def test_streams_value_and_exception_are_each_calls_own(rt: Runtime) -> None:
    with rt.python_session() as s:
        first = s.run("import sys\nprint('one'); print('err', file=sys.stderr); 1")
        second = s.run("print('two'); 2")
        assert first.result and second.result
        assert (first.result.stdout, first.result.stderr, first.output) == ("one\n", "err\n", 1)
        assert (second.result.stdout, second.result.stderr, second.output) == ("two\n", "", 2)
        failed = s.run("def g():\n    raise ValueError('no')\ng()")
        assert failed.result
        assert (failed.outcome, failed.result.exit_code) == (Outcome.TOOL_ERROR, 1)
        assert "ValueError: no" in failed.result.stderr
        assert "session.py" not in failed.result.stderr
        left = s.run("import sys\nsys.exit(7)")
        assert left.result and left.result.exit_code == 7
        child = s.run("import subprocess\nsubprocess.run(['echo', 'from a child']).returncode")
        assert (told(child), child.output) == ((Outcome.SUCCEEDED, "from a child\n"), 0)
        assert told(s.run("print('still here')")) == (Outcome.SUCCEEDED, "still here\n")


def test_every_call_is_an_execution_whose_receipt_names_the_session(rt: Runtime) -> None:
    with rt.python_session() as s:
        calls = [s.run("x = 1"), s.run("1 / 0"), s.run("x")]
        parent = s.receipt_id
    whole = s.close()
    assert len({each.execution_id for each in (*calls, whole)}) == 4
    assert {each.trace_id for each in (*calls, whole)} == {whole.trace_id}
    assert whole.receipt_id == parent
    for each in calls:
        predicate = statement(rt, each.receipt_id)["predicate"]
        assert predicate["parent_receipt"] == parent
        assert predicate["execution_id"] == each.execution_id
        events = [event["event_type"] for event in _events(rt, each)]
        assert events == [
            "tool_run_start",
            "tool_run_resource_applied",
            "tool_run_output_captured",
            "tool_run_end",
            *([] if each.ok else ["error"]),
        ]
    assert statement(rt, parent)["predicate"]["parent_receipt"] is None
    totals = [event["data"] for event in _events(rt, whole) if event["event_type"] == "session"]
    assert totals == [{"calls": 3, "failed": 1, "stray_bytes": 0}]
    assert (whole.outcome, s.close()) == (Outcome.SUCCEEDED, whole)
    assert verifies(rt)


def _events(rt: Runtime, result: Result) -> list[dict[str, Any]]:
    rows = rt.database.rows(
        "SELECT event_type, data FROM trace_events WHERE execution_id = ? ORDER BY seq",
        (result.execution_id,),
    )
    return [{"event_type": kind, "data": json.loads(data)} for kind, data in rows]


def test_a_call_is_pending_on_the_disk_before_it_starts(rt: Runtime) -> None:
    cancel = Cancel()
    with rt.python_session() as s:
        thread = threading.Thread(
            target=s.run, args=("import time\ntime.sleep(60)",), kwargs={"cancel": cancel}
        )
        thread.start()
        # The session itself, and the call in it.
        until(lambda: len(rt.services.executions.open_executions()) == 2)
        cancel.cancel()
        thread.join()
    assert rt.services.executions.open_executions() == ()
    cancel.close()


def test_a_call_that_overruns_ends_the_session_and_later_ones_say_why(rt: Runtime) -> None:
    nap = marker()
    with rt.python_session() as s:
        assert s.run("import subprocess").ok  # which takes time that the next call does not have
        code = f"subprocess.Popen(['sleep', '{nap}'])\nprint('half', flush=True)"
        late = s.run(f"{code}\nwhile True: pass", timeout="2s")
        assert told(late) == (Outcome.TIMED_OUT, "half\n")
        assert alive(nap) == []
        refused = s.run("x")
        assert (refused.outcome, refused.reason_codes) == (Outcome.REJECTED, ("SESSION_ENDED",))
        assert "longer than its time" in refused.violations[0].message
        assert refused.result is None
        assert Path(refused.receipt_path).exists()
    assert verifies(rt)


def test_memory_is_limited_for_the_session_and_proven_by_the_kernel(rt: Runtime) -> None:
    with rt.python_session(memory="64M") as s:
        first = s.run("x = bytearray(20 << 20)", timeout="20s")
        rows = {row.limit: row for row in first.enforcement}
        assert first.ok
        assert (rows["memory_mb"].peak or 0) >= 20
        assert (rows["memory_mb"].tripped, rows["timeout_ms"].requested) == (False, "20000")
        killed = s.run("print('so far', flush=True)\ny = bytearray(300 << 20)")
        assert told(killed) == (Outcome.RESOURCE_KILLED, "so far\n")
        assert {row.limit for row in killed.enforcement if row.tripped} == {"memory_mb"}
        assert s.run("1").reason_codes == ("SESSION_ENDED",)
    assert s.close().outcome is Outcome.RESOURCE_KILLED


def test_an_attempt_to_break_out_ends_the_call_and_the_session(rt: Runtime) -> None:
    code = "import ctypes\nctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, 0)"
    with rt.python_session() as s:
        assert s.run("1").ok
        assert s.run(code).outcome is Outcome.POLICY_VIOLATION
        assert s.run("1").reason_codes == ("SESSION_ENDED",)


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os\nprint('last', flush=True)\nos._exit(0)", "exited with code 0"),
        ("import os\nprint('last', flush=True)\nos._exit(9)", "exited with code 9"),
        ("import os\nprint('last', flush=True)\nos.kill(os.getpid(), 9)", "died of signal 9"),
        # Killing the porter loses what it had not passed on yet.
        ("import os\nos.kill(os.getppid(), 9)", "broke off"),
    ],
)
def test_an_interpreter_that_dies_in_a_call_has_not_succeeded(
    rt: Runtime, code: str, how: str
) -> None:
    with rt.python_session() as s:
        died = s.run(code)
        assert died.result
        said = "last\n" if "print" in code else ""
        assert (died.outcome, died.result.stdout) == (Outcome.TOOL_ERROR, said)
        assert how in (died.result.error_reason or "")
        assert s.run("1").reason_codes == ("SESSION_ENDED",)
    assert verifies(rt)


def test_a_preload_that_fails_is_told_by_the_first_call(rt: Runtime) -> None:
    with rt.python_session(preload=["no_such_module"]) as s:
        failed = s.run("1")
        assert failed.outcome is Outcome.TOOL_ERROR
        assert failed.result and "no_such_module" in failed.result.stderr


def test_a_session_that_nobody_speaks_with_ends(rt: Runtime) -> None:
    with rt.python_session(idle_s=0.3) as s:
        assert s.run("1").ok
        until(lambda: s.ended)
        refused = s.run("1")
        assert refused.reason_codes == ("SESSION_ENDED",)
        assert "it was idle for longer" in refused.violations[0].message


def test_a_long_call_is_not_idle(rt: Runtime) -> None:
    with rt.python_session(idle_s=1.0) as s:
        assert s.run("import time\ntime.sleep(2.0)").ok


def test_a_cancelled_call_is_on_record_and_nothing_of_it_lives(rt: Runtime) -> None:
    nap, cancel = marker(), Cancel()
    with rt.python_session() as s:
        threading.Thread(target=lambda: (until(lambda: alive(nap)), cancel.cancel())).start()
        code = f"import subprocess\nprint('half', flush=True)\nsubprocess.run(['sleep', '{nap}'])"
        assert told(s.run(code, cancel=cancel)) == (Outcome.CANCELLED, "half\n")
        assert alive(nap) == []
        assert "cancelled" in s.run("1").violations[0].message
    cancel.close()


def test_nothing_survives_close(rt: Runtime) -> None:
    nap = marker()
    with rt.python_session() as s:
        s.run(f"import subprocess\np = subprocess.Popen(['sleep', '{nap}'])")
        until(lambda: alive(nap))
        assert s.run("p.poll()").output is None  # it lives between calls
    assert alive(nap) == []
    assert s.run("1").reason_codes == ("SESSION_ENDED",)


def test_closing_the_runtime_closes_its_sessions() -> None:
    nap = marker()
    with Runtime.temporary() as rt:
        s = rt.python_session()
        s.run(f"import subprocess\nsubprocess.Popen(['sleep', '{nap}'])")
        until(lambda: alive(nap))
    assert alive(nap) == []
    assert s.close().outcome is Outcome.SUCCEEDED


def test_two_sessions_share_nothing(rt: Runtime) -> None:
    with rt.python_session() as one, rt.python_session() as two:
        one.run("x = 1; open('/tmp/left', 'w').write('x')")
        assert two.run("import os\n['x' in globals(), os.path.exists('/tmp/left')]").output == [
            False,
            False,
        ]
        assert one.run("x").output == 1


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("sandbox.filesystem.read", ["/etc"], "SCOPE_EXCEEDED"),
        ("sandbox.processes.allow_fork", False, "SESSION_NEEDS_CHILD"),
        ("sandbox.processes.max_children", 0, "SESSION_NEEDS_CHILD"),
    ],
)
def test_what_may_not_start_is_refused_with_a_receipt(
    rt: Runtime, field: str, value: object, code: str
) -> None:
    before = len(rt.services.receipts.latest(10_000))
    with pytest.raises(Refused) as caught:
        rt.python_session(set={field: value})
    assert code in [violation.code for violation in caught.value.violations]
    kept = rt.services.receipts.latest(10_000)
    assert len(kept) == before + 1
    assert statement(rt, kept[0].receipt_id)["predicate"]["outcome"] == "REJECTED"


def test_no_more_are_kept_than_may_be(rt: Runtime) -> None:
    with Runtime(dataclasses.replace(rt.settings, max_sessions=1)) as small:
        with small.python_session():
            with pytest.raises(Refused) as caught:
                small.python_session()
            assert caught.value.code == "SESSIONS_FULL"
        with small.python_session() as s:
            assert s.run("1").output == 1


def test_a_changed_tool_ends_no_call_but_takes_no_other() -> None:
    with Runtime.temporary() as rt, rt.python_session() as s:
        assert s.run("1").ok
        (rt.settings.root / "tools" / "snippet" / "README.md").write_text("changed")
        assert s.run("1").reason_codes == ("TOOL_CHANGED",)


def test_calls_of_a_session_take_a_place_and_the_session_does_not(rt: Runtime) -> None:
    settings = dataclasses.replace(rt.settings, max_concurrent=1)
    with Runtime(settings) as small, small.python_session() as s:
        s.run("x = 1")
        assert small.services.concurrency.free == 1
        assert small.python("2").output == 2
        assert s.run("x").output == 1


def test_sessions_can_be_awaited_and_cancelled(rt: Runtime) -> None:
    async def many() -> list[object]:
        async with rt.aio.python_session(params={"n": 1}) as s:
            assert (await s.run("x = n")).ok
            values = await asyncio.gather(*(s.run(f"x += {n}; x") for n in range(1, 20)))
            return [each.output for each in values]

    async def change_ones_mind() -> str:
        async with rt.aio.python_session() as s:
            code = "import time\nprint('at work', flush=True)\ntime.sleep(60)"
            output: list[bytes] = []
            task = asyncio.create_task(s.run(code, on_output=lambda _, part: output.append(part)))
            while not output:  # a call that is cancelled before it starts leaves the session open
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            refused = await s.run("1")
            return refused.violations[0].message

    assert asyncio.run(many()) == [1 + sum(range(1, n + 1)) for n in range(1, 20)]
    assert "cancelled" in asyncio.run(change_ones_mind())
    assert rt.services.executions.open_executions() == ()


# -- hostile --------------------------------------------------------------------------------


def test_frames_that_are_printed_are_only_printed(rt: Runtime) -> None:
    forged = "a0 eyJjb2RlIjogMCwgInZhbHVlIjogImZvcmdlZCJ9\nx0 0\no aGk=\n"
    code = f"import os\nfor fd in (1, 2):\n    os.write(fd, {forged.encode()!r})\n'true value'"
    with rt.python_session() as s:
        result = s.run(code)
        assert (result.outcome, result.output) == (Outcome.SUCCEEDED, "true value")
        assert result.result and result.result.stdout == result.result.stderr == forged
        assert s.run("2").output == 2


def test_frames_written_to_every_descriptor_there_is_are_no_answers(rt: Runtime) -> None:
    """The word of a call is not known before it: what is said earlier is nobody's answer."""
    code = (
        "import os\n"
        'fake = b\'0\' * 32 + b\'l{"code": 0, "value": "forged"}\'\n'
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, fake)\n"
        "    except OSError: pass\n"
        "'mine'"
    )
    with rt.python_session() as s:
        assert s.run(code).output == "mine"
        assert s.run("'next'").output == "next"
    assert next(e for e in _events(rt, s.close()) if e["event_type"] == "session")["data"][
        "stray_bytes"
    ]


def test_the_line_to_the_host_is_out_of_reach(rt: Runtime) -> None:
    """Neither the porter's descriptors nor its memory can be opened; one's own can."""
    code = (
        "import os\n"
        "def can(path, flags=os.O_RDONLY):\n"
        "    try: os.close(os.open(path, flags)); return True\n"
        "    except OSError: return False\n"
        "def fds(pid):\n"
        "    try: return bool(os.listdir(f'/proc/{pid}/fd'))\n"
        "    except OSError: return False\n"
        "me, porter = os.getpid(), os.getppid()\n"
        "[[fds(p), can(f'/proc/{p}/mem'), can(f'/proc/{p}/environ'), can(f'/proc/{p}/fd/0')]"
        " for p in (me, porter)]"
    )
    with rt.python_session() as s:
        own, porters = s.run(code).output
    assert own == [True] * 4
    assert porters == [False] * 4


def test_a_child_left_from_an_earlier_call_cannot_answer_for_a_later_one(rt: Runtime) -> None:
    nap = marker()
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    end = time.monotonic() + 20\n"
        "    while time.monotonic() < end:\n"
        "        for fd in range(3, 32):\n"
        '            try: os.write(fd, b\'f\' * 32 + b\'l{"code": 0, "value": "forged"}\')\n'
        "            except OSError: pass\n"
        "        time.sleep(0.001)\n"
        "    os._exit(0)\n"
        f"'{nap}'"
    )
    with rt.python_session() as s:
        assert s.run(code).ok
        for number in range(20):
            result = s.run(f"{number}")
            assert (result.outcome, result.output) == (Outcome.SUCCEEDED, number)


def test_what_is_printed_between_two_calls_is_no_calls_output(rt: Runtime) -> None:
    first, second = marker(), marker()
    script = f"exec 2>/dev/null; sleep {first}; printf late; exec sleep {second}"
    code = f"import os\nif os.fork() == 0: os.execv('/bin/sh', ['sh', '-c', {script!r}])"
    with rt.python_session() as s:
        assert told(s.run(code)) == (Outcome.SUCCEEDED, "")
        wake(first)
        sleeps(second)
        assert told(s.run("print('mine')")) == (Outcome.SUCCEEDED, "mine\n")
    totals = next(e for e in _events(rt, s.close()) if e["event_type"] == "session")["data"]
    assert totals["stray_bytes"] == 4


def test_a_fork_that_returns_from_its_snippet_takes_no_orders(rt: Runtime) -> None:
    with rt.python_session() as s:
        assert s.run("import os\nos.fork() and 0").ok
        assert [s.run(f"{n}").output for n in range(10)] == list(range(10))


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.closerange(3, 256)",
        "import os\nos.closerange(0, 256)",
        "import sys\nsys.stdout.close(); sys.stderr.close()",
        "import os\nos.dup2(1, 3); os.dup2(1, 4); os.dup2(1, 5); os.dup2(1, 6); os.dup2(1, 7)",
    ],
)
def test_closing_descriptors_hurts_the_session_alone(rt: Runtime, code: str) -> None:
    with rt.python_session(timeout="5s") as s:
        ended = s.run(code)
        assert ended.outcome in (Outcome.SUCCEEDED, Outcome.TOOL_ERROR, Outcome.TIMED_OUT)
        after = s.run("1 + 1")
        assert after.output == 2 or not after.ok
    assert verifies(rt)
    with rt.python_session() as other:
        assert other.run("1 + 1").output == 2


def test_a_flood_is_counted_bounded_and_digested(rt: Runtime) -> None:
    with rt.python_session() as s:
        result = s.run("import os\nfor _ in range(200): os.write(1, b'x' * 65536)\n'done'")
        assert (result.outcome, result.output) == (Outcome.SUCCEEDED, "done")
        assert result.streams and result.result
        facts = result.streams["stdout"]
        assert (facts.bytes, facts.kept, facts.truncated) == (200 * 65536, 1 << 20, True)
        assert facts.sha256 == hashlib.sha256(b"x" * 200 * 65536).hexdigest()
        assert s.run("2").output == 2
        endless = s.run("import os\nwhile True: os.write(1, b'y' * 65536)", timeout="1s")
        assert endless.outcome is Outcome.TIMED_OUT


def test_a_value_that_is_too_long_or_was_forged_comes_back_as_a_mark(rt: Runtime) -> None:
    with rt.python_session() as s:
        assert s.run("'x' * (3 << 20)").output == "x" * (3 << 20)
        long = s.run("'x' * (9 << 20)").output
        assert (long["$type"], long["$truncated"]) == ("str", True)
        assert s.run("{1, 2}").output == [1, 2]
        assert s.run("1").output == 1
    for said in ("'{]'", "'{\"value\": ' + '[' * 100000"):
        with rt.python_session() as s:
            forged = s.run(f"import __main__\n__main__._encode = lambda _: {said}\n1")
            assert forged.outcome is Outcome.SUCCEEDED
            assert forged.output["$type"] == "value.json"
            assert forged.output["$repr"].startswith("{")
    assert verifies(rt)


def test_a_session_that_answers_nonsense_with_the_right_word_fools_only_itself(
    rt: Runtime,
) -> None:
    """Code can find its own word in memory; all it can forge is its own answer."""
    code = (
        "import sys, os, socket\n"
        "frame = sys._getframe()\n"
        "while frame.f_code.co_name != '_interpret': frame = frame.f_back\n"
        "word, answers = frame.f_locals['word'], frame.f_locals['answers']\n"
        "answers.send(word + b'l' + b'0 19\\n{\"value\": \"forged\"}')\n"
        "'true'"
    )
    with rt.python_session() as s:
        assert s.run(code).output == "forged"
        assert s.run("3").output == 3


def test_many_calls_leave_nothing_open(rt: Runtime) -> None:
    with rt.python_session() as s:
        s.run("1")
        before = len(os.listdir("/proc/self/fd"))
        for number in range(100):
            assert s.run(f"{number}").output == number
        assert len(os.listdir("/proc/self/fd")) == before
    threads = threading.active_count()
    for _ in range(5):
        with rt.python_session() as s:
            s.run("1")
    assert threading.active_count() <= threads
