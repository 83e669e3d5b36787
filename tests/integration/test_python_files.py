"""Files of a snippet: given to it within the limits of the contract, and back by their names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from actum import ArtifactRef, Outcome, Refused, Runtime
from actum.contract.limits import INPUT_FILES_BYTES
from actum.errors import VerificationFailed

pytestmark = pytest.mark.sandbox

MIB = 1 << 20
DIGESTS = (
    "import hashlib, os\n"
    "{name: hashlib.sha256(open(name, 'rb').read()).hexdigest() for name in os.listdir('.')}"
)


@pytest.fixture(scope="module", params=[True, False], ids=["pool", "no-pool"])
def rt(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with Runtime.temporary(pool=request.param) as runtime:
        yield runtime


@pytest.fixture(params=["python", "session"])
def run(rt: Runtime, request: pytest.FixtureRequest) -> Iterator[Any]:
    with ExitStack() as stack:
        if request.param == "python":
            yield rt.python
        else:
            yield stack.enter_context(rt.python_session()).run


@pytest.mark.parametrize("sizes", [(0, 1), (60_000, 10_000), (5 * MIB, 5 * MIB)])
def test_files_arrive_up_to_the_limit_of_input_files(run: Any, sizes: tuple[int, ...]) -> None:
    files = {f"{number}.bin": os.urandom(size) for number, size in enumerate(sizes)}
    result = run(DIGESTS, files=files)
    assert result.outcome is Outcome.SUCCEEDED, result.result
    assert result.output == {n: hashlib.sha256(c).hexdigest() for n, c in files.items()}
    assert not result.files  # it wrote none


def test_files_beyond_the_limit_are_refused_by_field_size_and_limit(run: Any) -> None:
    for size in (INPUT_FILES_BYTES + 1, 200 * MIB):
        result = run("1", files={"a": bytes(size - 5), "b": "12345"})
        assert (result.outcome, result.output) == (Outcome.REJECTED, None)
        [found] = result.violations
        assert (found.code, found.field, found.value) == ("IV-05", "files", f"{size} bytes")
        assert str(INPUT_FILES_BYTES) in found.message
        assert result.receipt_id
    assert run("1", files={"a": "x"}).output == 1  # a decision that was cached is another's


def test_code_and_params_beyond_the_limit_of_stdin_are_refused_and_name_files(run: Any) -> None:
    for files in ({}, {"a": bytes(MIB)}):
        result = run("1", params={"x": "y" * 2 * MIB}, files=files)
        [found] = result.violations
        assert (found.code, found.field) == ("IV-05", "inputs.stdin")
        assert "files" in found.message


def test_what_a_snippet_wrote_comes_back_by_its_name(run: Any) -> None:
    code = (
        "import os\nos.makedirs('sub', exist_ok=True)\n"
        "left_open = open('out.csv', 'w')\nleft_open.write('a,b')\n"
        "open('sub/b.bin', 'wb').write(bytes(300_000))\n"
        "open('value.json', 'w').write('mine')\n"
        "open('.cache', 'w').write('hidden')\n"
        "os.symlink('/etc/passwd', 'link')\nos.mkfifo('pipe')\n"
        "open('changed.txt', 'w').write('new')\n"
        "{1}"
    )
    result = run(code, files={"changed.txt": "old", "same.txt": "same"})
    assert (result.outcome, result.output) == (Outcome.SUCCEEDED, [1])
    assert sorted(result.files) == ["changed.txt", "out.csv", "sub/b.bin", "value.json"]
    assert result.files["out.csv"].read() == b"a,b"
    assert result.files["out.csv"].text() == "a,b"
    assert result.files["sub/b.bin"].read() == bytes(300_000)
    assert result.files["value.json"].read() == b"mine"
    assert result.files["changed.txt"].read() == b"new"
    assert "same.txt" not in result.files
    found = {each.path: each for each in result.artifacts}
    assert found["cwd/out.csv"].sha256 == hashlib.sha256(b"a,b").hexdigest()
    assert result.document()["left_out"] == []


def test_a_failed_snippet_has_its_files_too(run: Any) -> None:
    result = run("open('so_far.txt', 'w').write('x')\n1 / 0")
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.files["so_far.txt"].read() == b"x"


def test_files_that_do_not_fit_are_named_and_do_not_fail(run: Any) -> None:
    code = (
        "open('big', 'wb').write(bytes(11 << 20))\nopen('a', 'wb').write(bytes(6 << 20))\n"
        "open('b', 'wb').write(bytes(6 << 20))\nopen('c', 'w').write('c')\n'value'"
    )
    result = run(code)
    assert (result.outcome, result.output) == (Outcome.SUCCEEDED, "value")
    assert sorted(result.files) == ["a", "c"]
    assert [(path, size) for path, size, _ in result.left_out] == [
        ("b", 6 * MIB),
        ("big", 11 * MIB),
    ]
    with pytest.raises(KeyError, match=r"big.*was not collected"):
        result.files["big"]
    many = run("for n in range(300): open(f'{n}.txt', 'w').write('x')")
    assert many.outcome is Outcome.SUCCEEDED
    assert 200 < len([name for name in many.files if name.endswith(".txt")]) <= 256
    assert many.left_out


def test_a_snippet_that_takes_the_place_of_its_own_files_does_not_fail(rt: Runtime) -> None:
    taken = rt.python("open('/artifacts/cwd', 'w').write('x')\nopen('a', 'w').write('1')\n5")
    assert (taken.outcome, taken.output) == (Outcome.SUCCEEDED, 5)
    assert [*taken.files] == ["cwd"] and [path for path, *_ in taken.left_out] == ["a"]
    closed = rt.python(
        "import os\nos.mkdir('d', 0)\nopen('a', 'w').write('1')\nos.chmod('a', 0)\n5"
    )
    assert (closed.outcome, closed.output) == (Outcome.SUCCEEDED, 5)
    assert {path for path, *_ in closed.left_out} == {"a", "d/"}


def test_no_folder_of_the_host_is_collected(rt: Runtime) -> None:
    """The project of this test is below /tmp, and so is its mount in the sandbox."""
    packages = rt.settings.root / "venv" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "lent.py").write_text("WORD = 'lent'\n")
    result = rt.python(
        "open('a', 'w').write('1')\n__import__('lent').WORD", venv=rt.settings.root / "venv"
    )
    assert (result.output, [*result.files], result.left_out) == ("lent", ["a"], ())


def test_a_call_of_a_session_has_the_files_since_the_call_before(rt: Runtime) -> None:
    with rt.python_session(files={"given": "x"}) as session:
        first = session.run("open('a', 'w').write('1')")
        assert [*first.files] == ["a"]
        assert [*session.run("2").files] == []
        second = session.run("open('a', 'w').write('2'); open('b', 'w').write('3')")
        assert {name: file.read() for name, file in second.files.items()} == {"a": b"2", "b": b"3"}
        assert first.files["a"].read() == b"1"


@pytest.mark.parametrize(
    "answer",
    [
        "b'0 0\\n3 1\\n../x'",
        "b'0 0\\n9 1\\n/tmp/a\\0bx'",
        "b'0 0\\n1 1\\nax1 1\\nax'",
        "b'0 0\\n1 99999999\\na'",
        "b'0 99999999\\n{}'",
        "b'999 0\\n'",
        "b'0 0\\n' + b''.join(b'4 0\\n%04d' % n for n in range(300))",
    ],
)
def test_a_session_that_answers_in_another_form_has_no_files(rt: Runtime, answer: str) -> None:
    forge = (
        "import sys\nframe = sys._getframe()\n"
        "while frame.f_code.co_name != '_interpret': frame = frame.f_back\n"
        "word, answers = frame.f_locals['word'], frame.f_locals['answers']\n"
    )
    with rt.python_session() as session:
        good = session.run(f"{forge}answers.send(word + b'l' + b'0 0\\n1 1\\nax')")
        assert good.files["a"].read() == b"x"  # the control: it can forge its own files
    with rt.python_session() as session:
        result = session.run(f"{forge}answers.send(word + b'l' + {answer})")
        assert result.outcome is Outcome.TOOL_ERROR and not result.files


def test_artifacts_of_any_tool_are_read_by_their_path(rt: Runtime) -> None:
    script = "echo a > $ACTUM_ARTIFACTS/a; mkdir $ACTUM_ARTIFACTS/d; echo b > $ACTUM_ARTIFACTS/d/b"
    result = rt.exec("shell", stdin=script)
    assert {name: file.read() for name, file in result.files.items()} == {
        "a": b"a\n",
        "d/b": b"b\n",
    }
    assert [file.read() for file in result.artifacts] == [b"a\n", b"b\n"]
    assert result.document()["result"]["artifacts"][0] == {
        "name": "a",
        "path": "a",
        "type": "file",
        "kind": "artifact",
        "size": 2,
        "sha256": hashlib.sha256(b"a\n").hexdigest(),
        "blake3": result.artifacts[0].blake3,
        "trace_id": result.trace_id,
    }
    refused = rt.exec("no-such-tool")
    assert (refused.artifacts, [*refused.files]) == ((), [])


def saved(rt: Runtime) -> ArtifactRef:
    return rt.python("open('out', 'w').write('mine')").files["out"]


def test_a_file_is_saved_once_and_through_no_link(rt: Runtime, tmp_path: Path) -> None:
    file = saved(rt)
    target = tmp_path / "out"
    assert file.save(target) == target
    assert target.read_bytes() == b"mine"
    target.write_bytes(b"kept")
    refusals = {"exists": target, "link": tmp_path / "link", "folder": tmp_path}
    (tmp_path / "victim").write_bytes(b"victim")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "elsewhere")
    refusals |= {"way": tmp_path / "way" / "out", "missing": tmp_path / "no" / "out"}
    for path in refusals.values():
        with pytest.raises(Refused) as refused:
            file.save(path)
        assert refused.value.code == "FILE_NOT_SAVED"
        assert str(refused.value).startswith("path: ")
    assert target.read_bytes() == b"kept"
    file.save(target, overwrite=True)
    file.save(tmp_path / "link", overwrite=True)
    assert target.read_bytes() == (tmp_path / "link").read_bytes() == b"mine"
    assert not (tmp_path / "link").is_symlink()  # the link was replaced, not followed
    assert (tmp_path / "victim").read_bytes() == b"victim"
    with pytest.raises(Refused):
        file.save(tmp_path / "way" / "out", overwrite=True)
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"out", "link", "victim", "elsewhere", "way"}


def test_changed_evidence_is_never_returned(rt: Runtime) -> None:
    result = rt.python("open('out', 'wb').write(bytes(300_000))")
    file = result.files["out"]
    assert file.read() == bytes(300_000)
    stored = rt.blobs.path(file.blake3)
    stored.write_bytes(b"changed")
    with pytest.raises(VerificationFailed):
        file.read()


def test_files_of_a_closed_runtime_are_refused_with_a_reason() -> None:
    with Runtime.temporary() as rt:
        result = rt.python("open('a', 'w').write('x')\nopen('b', 'wb').write(bytes(300_000))")
        assert len(result.files) == 2
    for file in result.files.values():
        with pytest.raises(Refused) as refused:
            file.read()
        assert refused.value.code == "RUNTIME_CLOSED"


def test_a_recorded_answer_has_its_files() -> None:
    with Runtime.temporary() as rt:
        request = {"set": {"execution_id": "0b1f9a52-6a52-4d2e-9f0e-0c2a4b6f8d10"}}
        first = rt.python("open('a', 'w').write('x')\n{1}", **request)
        again = rt.python("open('a', 'w').write('x')\n{1}", **request)
        assert again.replayed and again.output == first.output == [1]
        assert again.files["a"].read() == b"x"
