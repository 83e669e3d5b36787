"""Files that `actum executors new` writes: an executor that passes the review, and its test."""

from __future__ import annotations

from actum.errors import Refused
from actum.executors.model import EXECUTOR_ID

_EXECUTOR = '''"""Say here what {name} computes, from which payload, and when it has no output."""


class {class_name}:
    executor_id = "{name}"
    version = "0.1.0"
    capabilities = []
    limits = {{
        "timeout_ms": 1000,
        "max_payload_bytes": 10_000,
        "max_depth": 10,
        "max_list_items": 100,
    }}
    # `actum executors review` runs these in several environments and expects these outputs.
    samples = [
        {{"payload": {{"numbers": [1, 2, 3]}}, "output": {{"sum": 6}}}},
        {{"payload": {{"numbers": []}}, "output": None}},
    ]

    def execute(self, req):
        numbers = req.payload["numbers"]
        if not numbers:
            return None
        return {{"sum": sum(numbers)}}
'''

_TEST = '''"""What {name} promises, tried through the real pipeline. Run with `pytest`."""

from pathlib import Path

import pytest

from actum import Runtime

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def runtime():
    with Runtime.open(HERE) as opened:
        review = opened.executors.review(HERE / "{name}.py", by="user:test")
        assert review.approved, [check for check in review.checks if not check.passed]
        yield opened


def test_it_computes(runtime):
    result = runtime.act({{"action": "{name}", "payload": {{"numbers": [1, 2, 3]}}}})
    assert result.status == "SUCCESS"
    assert runtime.act_value(result) == {{"sum": 6}}


def test_it_has_no_output_for_no_input(runtime):
    result = runtime.act({{"action": "{name}", "payload": {{"numbers": []}}}})
    assert (result.status, result.output_digest) == ("SUCCESS", None)


def test_what_it_does_not_expect_fails(runtime):
    result = runtime.act({{"action": "{name}", "payload": {{}}}})
    assert (result.status, result.reason_codes) == ("FAILED", ("EXECUTOR_EXCEPTION",))
'''


def start(name: str) -> dict[str, str]:
    """File name -> content."""
    if not EXECUTOR_ID.fullmatch(name):
        raise Refused(
            "NAME_INVALID",
            f"NAME: {name[:80]!r} cannot be an executor_id.",
            remedy="Use lower case words joined by single underscores, e.g. word_count.",
        )
    class_name = "".join(word.capitalize() for word in name.split("_"))
    return {
        f"{name}.py": _EXECUTOR.format(name=name, class_name=class_name),
        f"test_{name}.py": _TEST.format(name=name),
    }
