"""A signed receipt tells whether another run was the same, and in what it was not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from actum import Result, Runtime
from actum.registry.approval_workflow import approve

pytestmark = pytest.mark.sandbox


@pytest.fixture
def rt() -> Iterator[Runtime]:
    with Runtime.temporary(pool=False) as runtime:
        yield runtime


def digests(rt: Runtime, result: Result) -> dict[str, Any]:
    envelope = rt.services.receipts.find(result.check().receipt_id).envelope
    predicate = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    call = predicate["call"]
    return {
        "tool": (predicate["tool"]["pin"], predicate["executable"]["sha256"]),
        "arguments": call["arguments_sha256"],
        "environment": call["environment_sha256"],
        "input": call["stdin_sha256"],
        "permissions": predicate["policy"]["sha256"],
    }


def run(rt: Runtime, *words: str, **asked: Any) -> dict[str, Any]:
    asked = {"stdin": "true", "cwd": rt.settings.root, **asked}
    return digests(rt, rt.exec("shell", *words, **asked))


@pytest.mark.req("004-73")
def test_exactly_the_digest_of_what_differs_is_another_one(rt: Runtime) -> None:
    first = run(rt, "a", env={"COLUMNS": "80"})
    assert run(rt, "a", env={"COLUMNS": "80"}) == first
    others = {
        "arguments": run(rt, "b", env={"COLUMNS": "80"}),
        "environment": run(rt, "a", env={"COLUMNS": "81"}),
        "input": run(rt, "a", env={"COLUMNS": "80"}, stdin="exit 0"),
        "permissions": run(rt, "a", env={"COLUMNS": "80"}, memory="100M"),
    }
    readme = rt.settings.root / "tools/shell/README.md"
    readme.write_text(readme.read_text() + "\nanother version\n")
    approve(rt.settings.root, rt.keyring, "shell", by="b", evidence="e", date="2026-11-15")
    others["tool"] = run(rt, "a", env={"COLUMNS": "80"})
    for name, found in others.items():
        assert {each for each in first if found[each] != first[each]} == {name}
        assert all(digest for digest in found.values())


#: Prints what would differ from run to run if the runtime did not fix it.
VARIED = """
import locale, os, sys, time
print(hash("a"), list({"a", "b", "c", "d", "e", "f"}), sys.flags.hash_randomization)
print(time.tzname, locale.setlocale(locale.LC_ALL, ""), oct(os.umask(0o22)), sorted(os.environ))
print(os.environ["PYTHONHASHSEED"])
"""


@pytest.mark.req("004-72", "004-1")
@pytest.mark.parametrize("tool", ["python", "snippet"])
def test_the_runtime_adds_no_variation_at_d0(tool: str) -> None:
    """In two runtimes, each prepared and not: interpreters are executed, warm and forked."""
    said = set()
    for pool in (True, False):
        with Runtime.temporary(pool=pool) as runtime:
            for _ in range(4):
                if tool == "python":
                    result = runtime.exec("python", stdin=VARIED, cwd=runtime.settings.root)
                else:
                    result = runtime.python(VARIED)
                assert result.check().result is not None
                said.add(result.result.stdout)  # type: ignore[union-attr]
                runtime.services.runners["local"].rest()  # type: ignore[index]
    assert len(said) == 1
    assert said.pop().endswith("\n0\n")
