"""Interpreters outside /usr run from an approved prefix, or are refused with the line to write."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Refused, Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.store.keys import Keyring
from common import prefixes
from common.own_folder import own_folder
from common.prefixes import PYTHON
from common.receipt_schema import problems
from common.settings import add_settings

__all__ = ["own_folder"]
pytestmark = pytest.mark.sandbox

_WHERE = "import json, sys; print(sys.prefix, json.__file__)"


@pytest.fixture
def prefix(own_folder: Path) -> Path:
    return prefixes.python_prefix(own_folder / "versions/3.x")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "project"
    create(folder, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    yield folder


def search(root: Path, tool: str, *folders: Path) -> None:
    """The tool finds its program in these folders."""
    file = root / f"tools/{tool}/tool.yaml"
    listed = json.dumps([str(folder) for folder in folders])
    file.write_text(f"{file.read_text()}\npath: {listed}\n")
    keyring = Keyring.open(root / ".actum")
    approve(root, keyring, tool, by="b", evidence="e", date="2026-01-01")


def grant(root: Path, *folders: Path) -> None:
    listed = json.dumps([str(folder) for folder in folders])
    add_settings(root, f"[interpreters]\nprefixes = {listed}\n")


def policy_of(runtime: Runtime, receipt_id: str | None) -> Mapping[str, Any]:
    assert receipt_id is not None
    payload = str(runtime.services.receipts.find(receipt_id).envelope["payload"])
    statement = json.loads(base64.b64decode(payload))
    assert problems("receipt", statement) == []
    found: Mapping[str, Any] = statement["predicate"]["policy"]["document"]
    return found


def actum(root: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "actum.doors.cli.main", *words],
        cwd=root,
        input=stdin,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )


def test_a_python_of_a_prefix_runs_with_its_library_and_its_digest_in_the_receipt(
    root: Path, prefix: Path
) -> None:
    search(root, "python", prefix / "bin")
    grant(root, prefix)
    with Runtime.open(root, pool=False) as runtime:
        result = runtime.exec("python", stdin=_WHERE, cwd=root).check()
        policy = policy_of(runtime, result.receipt_id)
        other = runtime.exec("shell", stdin="true", cwd=root).check()
        without = policy_of(runtime, other.receipt_id)
    assert result.result is not None
    assert result.result.stdout.split() == [str(prefix), f"{prefix}/lib/{PYTHON}/json/__init__.py"]
    program = prefix / "bin" / PYTHON
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    assert policy["interpreters"] == [{"prefix": str(prefix), "programs": {str(program): digest}}]
    assert "interpreters" not in without


def test_only_a_tool_whose_program_is_there_sees_the_prefix(root: Path, prefix: Path) -> None:
    search(root, "python", prefix / "bin")
    grant(root, prefix)
    look = f"import os; print(os.path.exists({str(prefix)!r}))"
    with Runtime.open(root, pool=False) as runtime:
        inside = runtime.exec("python", stdin=look, cwd=root).check()
        outside = runtime.exec("shell", stdin=f"test -e {prefix} || echo absent", cwd=root).check()
        named = runtime.exec("ripgrep", parameters={"pattern": "x", "path": str(prefix)}, cwd=root)
    assert inside.result is not None and outside.result is not None
    assert (inside.result.stdout, outside.result.stdout) == ("True\n", "absent\n")
    assert named.reason_codes == ("IV_03",)


def test_no_input_may_name_a_path_in_the_prefix(root: Path, prefix: Path) -> None:
    search(root, "python", prefix / "bin")
    grant(root, prefix)
    asked = {
        "tool_id": "TL-011",
        "inputs": {
            "command": "python3",
            "stdin": "print(1)",
            "working_directory": str(root),
            "input_files": [f"{prefix}/lib/{PYTHON}/os.py"],
        },
    }
    with Runtime.open(root, pool=False) as runtime:
        assert runtime.execute(asked).outcome is Outcome.REJECTED
        del asked["inputs"]["input_files"]
        assert runtime.execute(asked).outcome is Outcome.SUCCEEDED


def test_the_refusal_names_the_line_that_makes_the_command_succeed(
    root: Path, prefix: Path
) -> None:
    search(root, "python", prefix / "bin")
    refused = actum(root, "exec", "python", "--stdin", "-", stdin=_WHERE)
    assert refused.returncode == 3
    assert "EXECUTABLE_OUTSIDE" in refused.stderr
    line = re.search(r"`(prefixes = [^`]+)` under `\[interpreters\]`", refused.stderr)
    assert line is not None, refused.stderr
    file = root / "actum.toml"
    file.write_text(f"{file.read_text()}\n[interpreters]\n{line[1]}\n")
    unapproved = actum(root, "exec", "python", "--stdin", "-", stdin=_WHERE)
    assert (unapproved.returncode, "SETTINGS_CHANGED" in unapproved.stderr) == (3, True)
    assert actum(root, "config", "approve", "--by", "me").returncode == 0
    done = actum(root, "exec", "python", "--stdin", "-", stdin=_WHERE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == str(prefix)
    assert actum(root, "verify").returncode == 0
    assert str(prefix) in actum(root, "config", "show").stdout


def test_a_script_of_a_prefix_runs_with_the_interpreter_that_it_names(
    root: Path, own_folder: Path
) -> None:
    prefix = prefixes.script_prefix(own_folder / "node/v1")
    engine, script = prefix / "bin/engine", prefix / "lib/hello/hello.sh"
    (adapter,) = (root / "tools/shell/adapters").glob("*.yaml")
    adapter.write_text(re.sub(r"executable: \S+", "executable: hello", adapter.read_text()))
    tool = root / "tools/shell/tool.yaml"
    tool.write_text(re.sub(r"- sh\n", "- hello\n", tool.read_text()))
    search(root, "shell", prefix / "bin")
    grant(root, prefix)
    with Runtime.open(root, pool=False) as runtime:
        result = runtime.exec("shell", stdin=":", cwd=root)
        policy = policy_of(runtime, result.receipt_id)
    assert result.result is not None, result
    assert result.result.stdout == f"hello from {script}\n"
    (granted,) = policy["interpreters"]
    assert {*granted["programs"]} == {str(engine), str(script)}


def test_a_script_in_the_project_may_have_its_interpreter_in_a_prefix(
    root: Path, prefix: Path
) -> None:
    script = root / "programs/sh"
    script.parent.mkdir()
    script.write_text(f"#!{prefix}/bin/python3\n{_WHERE}\n")
    script.chmod(0o755)
    search(root, "shell", script.parent)
    with Runtime.open(root, pool=False) as runtime:
        refused = runtime.exec("shell", stdin=":", cwd=root)
    assert refused.reason_codes == ("EXECUTABLE_OUTSIDE",)
    assert f"first line of {script}" in refused.violations[0].message
    grant(root, prefix)
    with Runtime.open(root, pool=False) as runtime:
        result = runtime.exec("shell", stdin=":", cwd=root).check()
    assert result.result is not None
    assert result.result.stdout.split()[0] == str(prefix)


def test_a_virtual_environment_of_a_prefix_runs_with_its_packages(root: Path, prefix: Path) -> None:
    venv = prefixes.environment(root / ".venv", prefix / "bin")
    search(root, "python", venv / "bin")
    grant(root, prefix)
    program = "import packed, sys; print(packed.answer, sys.prefix, sys.base_prefix)"
    with Runtime.open(root, pool=False) as runtime:
        result = runtime.exec("python", stdin=program, cwd=root).check()
    assert result.result is not None
    assert result.result.stdout.split() == ["42", str(venv), str(prefix)]


def test_an_environment_whose_home_is_behind_a_link_is_refused_with_the_folder_of_both(
    root: Path, prefix: Path
) -> None:
    """As uv makes them: `home` names a minor version, a link to the full one."""
    link = prefix.parent / "3"
    link.symlink_to(prefix.name)
    venv = prefixes.environment(root / ".venv", link / "bin")
    search(root, "python", venv / "bin")
    grant(root, prefix)
    program = "import packed, sys; print(packed.answer, sys.base_prefix)"
    with Runtime.open(root, pool=False) as runtime:
        refused = runtime.exec("python", stdin=program, cwd=root)
    assert refused.reason_codes == ("EXECUTABLE_OUTSIDE",)
    message = refused.violations[0].message
    assert f'"{prefix.parent}"]' in message
    file = root / "actum.toml"
    file.write_text(file.read_text().replace(f'["{prefix}"]', f'["{prefix.parent}"]'))
    add_settings(root, "")
    with Runtime.open(root, pool=False) as runtime:
        result = runtime.exec("python", stdin=program, cwd=root).check()
    assert result.result is not None
    assert result.result.stdout.split() == ["42", str(link)]


def test_an_environment_that_the_sandbox_does_not_show_is_refused(
    root: Path, own_folder: Path
) -> None:
    """Its program is a link to the system's Python, which would run without its packages."""
    venv = prefixes.environment(own_folder / "env", Path("/usr/bin"))
    search(root, "python", venv / "bin")
    with Runtime.open(root, pool=False) as runtime:
        refused = runtime.exec("python", stdin="print(1)", cwd=root)
    assert refused.reason_codes == ("EXECUTABLE_OUTSIDE",)
    assert str(venv) in refused.violations[0].message
    grant(root, venv)
    with Runtime.open(root, pool=False) as runtime:
        program = "import packed; print(packed.answer)"
        result = runtime.exec("python", stdin=program, cwd=root).check()
    assert result.result is not None
    assert result.result.stdout == "42\n"


@pytest.mark.parametrize("pool", [False, True])
def test_snippets_run_on_the_python_of_a_prefix(root: Path, prefix: Path, pool: bool) -> None:
    venv = prefixes.environment(root / ".venv", prefix / "bin")
    search(root, "snippet", prefix / "bin")
    grant(root, prefix)
    with Runtime.open(root, pool=pool) as runtime:
        for _ in range(3):  # the later ones from warm interpreters
            result = runtime.python("import packed, sys; [packed.answer, sys.prefix]", venv=venv)
            assert result.check().output == [42, str(prefix)]


def test_an_environment_for_another_python_is_refused_by_name(root: Path, own_folder: Path) -> None:
    home = own_folder / "versions/3.99/bin"
    packages = root / ".venv/lib/python3.99/site-packages"
    packages.mkdir(parents=True)
    (root / ".venv/pyvenv.cfg").write_text(f"home = {home}\n")
    with Runtime.open(root, pool=False) as runtime, pytest.raises(Refused) as refusal:
        runtime.python("1", venv=root / ".venv")
    assert refusal.value.code == "VENV_UNFIT"
    assert str(home) in refusal.value.message
    assert f'path: ["{home}"]' in refusal.value.remedy
    assert "interpreters" in refusal.value.remedy
