"""A runtime in use writes the journal out while it is idle."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actum import Runtime
from actum.capture.model import Capture
from actum.contract.call import Plan
from actum.contract.model import RunnerKind
from actum.errors import SandboxUnavailable
from actum.evidence.background_writer import MANY, SOME
from actum.testing import FakeRunner, captured
from common.journals import emptied, filed
from hostile.jail import until

_PATIENCE_S = 60  #: only a test that fails waits for it


def _fails(_plan: Plan) -> Capture:
    raise SandboxUnavailable("It does not work.", remedy="Fix it.")


def _breaks(_plan: Plan) -> Capture:
    raise RuntimeError("not foreseen")


@pytest.fixture
def runtime() -> Iterator[Callable[[Any], Runtime]]:
    opened: list[Runtime] = []
    with Runtime.temporary(pool=False) as temporary:

        def make(answer: Any) -> Runtime:
            runners = {RunnerKind.LOCAL: FakeRunner(answer)}
            opened.append(Runtime(temporary.settings, runners=runners))
            return opened[-1]

        yield make
        for each in opened:
            each.close()


def test_it_is_filed_without_anybody_asking(
    runtime: Callable[[Any], Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    rt, done = runtime(captured(b"hi")), emptied(monkeypatch)
    for _ in range(SOME - 1):
        rt.exec("shell", stdin="echo hi", cwd=rt.settings.root).check()
    assert filed(rt.database) == 0
    rt.exec("shell", stdin="echo hi", cwd=rt.settings.root).check()
    assert done.wait(_PATIENCE_S)
    assert filed(rt.database) == SOME
    rt.exec("shell", stdin="echo hi", cwd=rt.settings.root).check()
    assert all(finding.passed for finding in rt.verifier.verify_all())
    assert filed(rt.database) == SOME + 1


def test_without_a_pool_there_is_no_thread_and_no_connection_for_it() -> None:
    runners = {RunnerKind.LOCAL: FakeRunner(captured())}
    with (
        Runtime.temporary(pool=False) as temporary,
        Runtime(temporary.settings, runners=runners, pool=False) as rt,
    ):
        for _ in range(MANY):
            rt.exec("shell", stdin="echo hi", cwd=rt.settings.root).check()
        assert filed(rt.database) == 0
        rt.exec("shell", stdin="echo hi", cwd=rt.settings.root).check()
        assert filed(rt.database) == MANY  # by the next request
        assert rt.services.ledger.background_writer._worker is None
        assert rt.database._background is None


def test_what_it_holds_it_holds_from_the_start(
    runtime: Callable[[Any], Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    rt, done = runtime(captured()), emptied(monkeypatch)
    rt.exec("shell", stdin="echo hi", cwd=rt.settings.root).check()
    transactions = rt.settings.home / "transactions"

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    # The thread that removes layers has open folders while it does.
    until(lambda: {name[:6] for name in os.listdir(transactions)} <= {"ready-", "lock"}, "its rest")
    before = held()
    for _ in range(SOME):
        rt.exec("shell", stdin="echo hi", cwd=rt.settings.root).check()
    assert done.wait(_PATIENCE_S)
    until(lambda: held() == before, "the end of what was opened meanwhile")


@pytest.mark.parametrize("answer", [_fails, _breaks, captured()], ids=["fault", "bug", "fine"])
def test_nobody_counts_as_served_who_was_answered(
    runtime: Callable[[Any], Runtime], answer: Any
) -> None:
    rt = runtime(answer)
    if callable(answer):
        with pytest.raises((SandboxUnavailable, RuntimeError)):
            rt.exec("shell", stdin="echo hi", cwd=rt.settings.root)
    else:
        assert rt.exec("shell", stdin="echo hi", cwd=rt.settings.root).outcome == "SUCCEEDED"
        refused = rt.exec("shell", stdin="echo hi", cwd=rt.settings.root, set={"tool_id": "TL-999"})
        assert refused.outcome == "REJECTED"
    assert rt.services.ledger.background_writer._served == []


def test_nor_does_one_whose_action_was_carried_out(runtime: Callable[[Any], Runtime]) -> None:
    rt = runtime(captured())
    background_writer = rt.services.ledger.background_writer
    seen: list[int] = []
    act = rt.executors.act

    def watched(*given: Any, **words: Any) -> Any:
        seen.append(len(background_writer._served))
        return act(*given, **words)

    rt.executors.act = watched  # type: ignore[method-assign]
    assert rt.act({"action": "no such action", "payload": {}}).status != "SUCCESS"
    assert seen == [1]
    assert background_writer._served == []
