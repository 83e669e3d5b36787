"""`actum executors` and `rt.act`, used as a person uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create

ACTUM = str(Path(sys.executable).with_name("actum"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("door")
    create(folder, RunnerKind.LOCAL, by="user:test", date="2026-01-01")
    yield folder


def _actum(project: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ACTUM, "executors", *words],
        cwd=project,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def test_list_shows_what_may_be_called_and_the_walls(project: Path) -> None:
    ended = _actum(project, "list", "--json")
    document = json.loads(ended.stdout)
    assert {"noop", "contract_compile"} <= {each["executor_id"] for each in document["executors"]}
    assert "seccomp" in document["walls"]
    assert document["actions"]["process"]["executor"] == "text_process"
    assert "text_process" in _actum(project, "list").stdout


@pytest.mark.req("001-33")
def test_call_prints_digests_and_the_value_only_when_asked(project: Path) -> None:
    ended = _actum(project, "call", "process", "-p", "text=quiet", "--json")
    document = json.loads(ended.stdout)
    assert (ended.returncode, document["status"]) == (0, "SUCCESS")
    assert "QUIET" not in ended.stdout + ended.stderr
    shown = _actum(project, "call", "text_process", "--payload", '{"text": "loud"}', "--value")
    assert (shown.returncode, json.loads(shown.stdout)) == (0, "LOUD")
    piped = _actum(project, "call", "process", "--payload", "-", "--value", stdin='{"text":"a"}')
    assert json.loads(piped.stdout) == "A"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("call", "nobody"), 3),
        (("call", "process", "-p", "text=5"), 1),
        (("call", "process", "--payload", "[1]"), 2),
        (("call", "process", "--payload", "{"), 2),
        (("call", "process", "-p", "text"), 2),
        (("call", "process", "--payload", "@/nowhere"), 2),
        (("new", "Not-A-Name"), 3),
    ],
)
def test_exit_codes(project: Path, words: tuple[str, ...], code: int) -> None:
    assert _actum(project, *words).returncode == code


def test_a_call_that_takes_too_long_exits_with_4(project: Path) -> None:
    pattern = {"schema": {"pattern": "(a+)+$"}, "value": "a" * 60 + "b"}
    ended = _actum(project, "call", "schema_validate", "--payload", json.dumps(pattern))
    assert ended.returncode == 4
    assert "EXECUTOR_TIMEOUT" in ended.stderr


def test_new_review_and_call_of_an_own_executor_and_its_test(project: Path) -> None:
    made = _actum(project, "new", "word_sum")
    assert made.returncode == 0, made.stderr
    assert _actum(project, "call", "word_sum").returncode == 3  # no verdict, no registration
    review = _actum(project, "review", "executors/word_sum.py", "--by", "user:alice", "--json")
    document = json.loads(review.stdout)
    assert (review.returncode, document["approved"], document["registered"]) == (0, True, True)
    assert document["by"] == "user:alice"
    called = _actum(project, "call", "word_sum", "-p", "numbers=[1, 2]", "--value")
    assert json.loads(called.stdout) == {"sum": 3}
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_word_sum.py"],
        cwd=project / "executors",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in tested.stdout
    assert _actum(project, "new", "word_sum").returncode == 2  # nothing is overwritten


@pytest.mark.req("001-29", "001-73")
def test_review_names_the_lines_and_exits_with_1(project: Path) -> None:
    file = project / "bad.py"
    file.write_text(
        '"""Bad."""\n\nimport os\n\n\nclass Bad:\n    executor_id = "bad"\n    version = "1"\n'
        "    capabilities = ['a']\n    limits = {}\n\n    def execute(self, req):\n"
        "        try:\n            return os.getcwd()\n        except Exception:\n"
        "            pass\n"
    )
    ended = _actum(project, "review", str(file))
    assert ended.returncode == 1
    for said in (
        "bad.py: line 3: import: os is not a pure module",
        "bad.py: line 15: blanket except",
        "version '1' must be X.Y.Z",
        "capabilities[0] 'a' must be upper case",
        "limits.timeout_ms is missing",
        "Rejected.",
    ):
        assert said in ended.stdout


def test_what_was_done_verifies(project: Path) -> None:
    ended = subprocess.run(
        [ACTUM, "verify", "--all"], cwd=project, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stdout


def test_a_runtime_acts_and_hands_the_value_over_separately(project: Path) -> None:
    wish = {
        "tool_id": "TL-010",
        "command": "sh",
        "stdin": "echo done",
        "working_directory": str(project),
    }
    with Runtime.open(project) as runtime:
        result = runtime.act({"action": "contract_compile", "payload": wish})
        assert not hasattr(result, "value")
        contract = runtime.act_value(result)
        assert contract["inputs"]["stdin"] == "echo done"
        # The bridge between the planes: an executor wrote it, the engine judges it.
        assert runtime.check(contract).violations == ()
