"""One system call of a work item's own process fails: nothing is lost, and the result is honest.

`make test` tries a spread of the calls of set-up and commit; `make soak` tries each of them.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from .cells import SOAK
from .lab import HOOKS, ITEM_RUN, Kind, Lab

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

_ERRORS = ("EIO", "ENOSPC", "EINVAL", "EPERM")
_SPREAD = 10
_KIND = Kind(ITEM_RUN, exclusive=False)


@pytest.fixture(scope="module", params=["overlay", "copy"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("faults"), request.param)
    yield lab
    lab.close()


@pytest.mark.req("002-35", "002-47")
@pytest.mark.parametrize("phase", ["setup", "commit"])
def test_whichever_call_fails_nothing_is_lost_and_the_result_is_honest(
    lab: Lab, phase: str, record_property: Callable[[str, object], None]
) -> None:
    total = _run(lab, phase, 0, "EIO")[0]["calls"]
    assert total > _SPREAD
    failures, ends, struck = [], Counter[str](), 0
    for number, error in zip(_chosen(total), itertools.cycle(_ERRORS), strict=False):
        report, end, wrong = _run(lab, phase, number, error)
        struck += bool(report["struck"])
        ends[end] += 1
        if wrong:
            lines = "\n    ".join(wrong)
            failures.append(f"call {number} of {total}: {report['struck']}\n    {lines}")
    figure = f"{struck} of {total} calls of {phase} failed on {lab.engine}: {dict(ends)}"
    record_property("figure", figure)
    assert not failures, "\n".join(failures)
    assert struck > 0


def _chosen(total: int) -> list[int]:
    if SOAK:
        return list(range(1, total + 1))
    return sorted({1 + each * total // _SPREAD for each in range(_SPREAD)})


def _run(lab: Lab, phase: str, number: int, error: str) -> tuple[dict, str, list[str]]:
    """(what the hook reports, before or after, what is wrong)."""
    unharmed = lab.unharmed(_KIND)
    report = lab.folder / "report.json"
    report.unlink(missing_ok=True)
    fault = {"phase": phase, "at": number, "error": error, "report": str(report)}
    hooks = {"PYTHONPATH": str(HOOKS), "ACTUM_TEST_HOOKS": json.dumps({"fault": fault})}
    lab.restore(unharmed.template)
    ended = lab.start(unharmed.words, None, hooks)
    committed, wrong = lab.judge(_KIND, ended)
    if (ended.exit_code == 0) != bool(committed):
        wrong.append(f"exit code {ended.exit_code}, and {sorted(committed)} committed")
    if not wrong and number % 10 == 0:
        wrong = lab.runs_next()
    if wrong:
        wrong.append(f"it said: {ended.said[-500:]!r}")
    return json.loads(report.read_text()), "after" if committed else "before", wrong
