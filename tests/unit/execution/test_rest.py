"""`rest` is called on a runner once the record is closed, however an execution ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from actum import Runtime
from actum.capture.model import Capture
from actum.contract.call import Plan
from actum.contract.model import RunnerKind
from actum.errors import Refused, SandboxUnavailable
from actum.evidence.ledger import Ledger
from actum.testing import FakeRunner, captured


class Resting(FakeRunner):
    """Does what its test says, and notes when it rests."""

    def __init__(self, steps: list[str], answer: Callable[[Plan], Capture]) -> None:
        super().__init__(answer)
        self.steps = steps

    def rest(self) -> None:
        self.steps.append("rested")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    steps: list[str] = []
    for name, step in (("write_ahead", "opened"), ("seal", "sealed")):
        inner = getattr(Ledger, name)

        def noted(self: Ledger, *asked: object, _inner=inner, _step=step, **more: object) -> object:
            found = _inner(self, *asked, **more)
            steps.append(_step)
            return found

        monkeypatch.setattr(Ledger, name, noted)
    yield steps


def run(steps: list[str], answer: Callable[[Plan], Capture]) -> None:
    with Runtime.temporary(pool=False) as rt:
        resting = Resting(steps, answer)
        with Runtime(rt.settings, runners={RunnerKind.LOCAL: resting}) as runtime:
            runtime.exec("shell", stdin="true", cwd=rt.settings.root)


def raising(error: BaseException) -> Callable[[Plan], Capture]:
    def answer(_plan: Plan) -> Capture:
        raise error

    return answer


def test_after_a_tool_has_run(steps: list[str]) -> None:
    run(steps, lambda _plan: captured(b"x"))
    assert steps == ["opened", "sealed", "rested"]


def test_after_a_refusal_at_the_start(steps: list[str]) -> None:
    run(steps, raising(Refused("PATH_CHANGED", "It moved.", remedy="Again.")))
    assert steps == ["opened", "sealed", "rested"]


@pytest.mark.parametrize("error", [SandboxUnavailable("It died.", remedy="Again."), OSError(5)])
def test_after_we_failed(steps: list[str], error: Exception) -> None:
    with pytest.raises(type(error)):
        run(steps, raising(error))
    assert steps == ["opened", "sealed", "rested"]


def test_after_an_interrupt(steps: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(steps, raising(KeyboardInterrupt()))
    assert steps == ["opened", "sealed", "rested"]
