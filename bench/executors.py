"""A call of a pure executor with every guard, beside a bare call in a process and beside a peer.

`actum` has a new payload in each call, `actum, repeated` the same one. `bare` calls an idle process
of a `multiprocessing` pool: no isolation between calls, no limits, no record. `bare, fresh process`
gives every call its own process: the isolation of Actum without the rest. Its caller is a separate
process, because a fork write-protects the memory of the process that forks, and every contender in
that process would pay for it. `pydantic-monty` runs the same text operation in its own interpreter,
with a fresh session per call and without records, also in a separate process.

Run alone with `python bench/executors.py`.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

from measured import interleaved, ratios
from peers import with_package
from project import project

from actum import Runtime
from actum.executors.model import ActionRequest

_TEXT = "the quick brown fox"
_SECONDS = 3.0


def _work(text: str) -> str:
    return text.upper()


def _answer(pipe: Any, text: str) -> None:
    pipe.send(_work(text))


def _fresh_process(context: Any) -> str:
    ours, theirs = context.Pipe()
    child = context.Process(target=_answer, args=(theirs, _TEXT))
    child.start()
    answer: str = ours.recv()
    child.join()
    return answer


def _serve_fresh(pipe: Any) -> None:
    context = multiprocessing.get_context("fork")
    while pipe.recv():
        began = time.perf_counter()
        _fresh_process(context)
        pipe.send((time.perf_counter() - began) * 1000)


def _fresh_caller(stack: ExitStack) -> Callable[[], float]:
    """A caller that forks a process for every call, and returns the time of each."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    caller = context.Process(target=_serve_fresh, args=(theirs,))
    caller.start()
    stack.callback(caller.join)
    stack.callback(ours.send, False)

    def call() -> float:
        with turn:
            ours.send(True)
            took: float = ours.recv()
            return took

    turn = threading.Lock()
    return call


def measure(rounds: int = 300) -> dict[str, Any]:
    with project() as root, Runtime.open(root) as rt, ExitStack() as stack:
        pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(2))

        numbers = itertools.count()

        def act(text: str) -> None:
            result = rt.act(ActionRequest(action="process", payload={"text": text}))
            if rt.act_value(result) != text.upper():
                raise RuntimeError(result)

        contenders: dict[str, Callable[[], object]] = {
            "actum": lambda: act(f"{_TEXT} {next(numbers)}"),
            "actum, repeated": lambda: act(_TEXT),
            "bare": lambda: pool.apply(_work, (_TEXT,)),
            "bare, fresh process": _fresh_caller(stack),
        }
        monty = _monty(stack)
        if monty is not None:
            contenders["pydantic-monty"] = monty
        rt.act(ActionRequest(action="process", payload={"text": "warm"}))
        latency = interleaved(contenders, rounds)
        latency["actum, without records"] = _without_records(rt, rounds)
        return {
            "latency": latency,
            "of a fresh process": ratios(latency, "bare, fresh process"),
            "throughput_per_s": {
                name: max(_throughput(contender, threads) for threads in (1, 2, 4))
                for name, contender in contenders.items()
            },
            "walls": list(rt.executors.pool.walls),
        }


_MONTY = """
import sys, time, pydantic_monty
with pydantic_monty.Monty() as host:
    for line in sys.stdin:
        began = time.perf_counter()
        with host.checkout() as session:
            answer = session.feed_run("text.upper()", inputs={"text": line.strip()})
        print((time.perf_counter() - began) * 1000, answer, flush=True)
"""


def _monty(stack: ExitStack) -> Callable[[], float] | None:
    """The peer in a separate process, which returns the time of each call."""
    try:
        words = [with_package("pydantic-monty"), "-c", _MONTY]
    except (OSError, subprocess.SubprocessError):
        return None  # no such package for this machine
    caller = stack.enter_context(
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    )
    assert caller.stdin is not None
    assert caller.stdout is not None
    ask, answers, turn = caller.stdin, caller.stdout, threading.Lock()
    stack.callback(ask.close)

    def call() -> float:
        with turn:
            ask.write(f"{_TEXT}\n")
            took, _, answer = answers.readline().strip().partition(" ")
        if answer != _TEXT.upper():
            raise RuntimeError(answer)
        return float(took)

    return call


class _NoJournal:
    """Records nothing: a call without its two durable writes."""

    def open(self, *_: object) -> int:
        return 0

    def close(self, *_: object) -> None:
        return None


def _without_records(rt: Runtime, rounds: int) -> dict[str, float]:
    from actum.executors.action_pipeline import Pipeline

    plane, unrecorded = rt.executors, cast("Any", _NoJournal())
    pipeline = Pipeline(
        registry=plane.registry, journal=unrecorded, pool=plane.pool, values=plane.values
    )

    def call() -> None:
        result = pipeline.act(ActionRequest(action="process", payload={"text": _TEXT}))
        if plane.value(result) != _TEXT.upper():
            raise RuntimeError(result)

    return interleaved({"call": call}, rounds)["call"]


def _throughput(contender: Callable[[], object], threads: int) -> float:
    """Calls per second with so many callers at once."""
    counts = [0] * threads
    until = time.perf_counter() + _SECONDS

    def work(index: int) -> None:
        while time.perf_counter() < until:
            contender()
            counts[index] += 1

    callers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    began = time.perf_counter()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return round(sum(counts) / (time.perf_counter() - began), 1)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
