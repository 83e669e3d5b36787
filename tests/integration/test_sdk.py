"""SDK adapters for real: functions of packages in four languages, called inside the sandbox."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from actum import ContractInvalid, Outcome, Runtime
from actum.execution.build_cache import remove_unused
from actum.execution.result import Result
from actum.registry.approval_workflow import approve

EXAMPLES = Path(__file__).parents[2] / "examples" / "sdk"
LANGUAGES = ["python", "node", "go", "rust"]
COMPILED = ["go", "rust"]

pytestmark = pytest.mark.sandbox


class Project:
    """A throwaway project that takes tools."""

    def __init__(self, runtime: Runtime) -> None:
        self.rt = runtime
        self.root = runtime.settings.root

    def add(self, folder: Path, name: str | None = None) -> Path:
        target = self.root / "tools" / (name or folder.name)
        shutil.copytree(folder, target)
        return target

    def approve(self, name: str) -> None:
        approve(self.root, self.rt.keyring, name, by="user:b", evidence="e", date="2026-11-15")

    def call(self, tool: str, **parameters: Any) -> Result:
        return self.rt.exec(tool, parameters=parameters)


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """With the four examples, approved."""
    with Runtime.temporary(pool=False) as runtime:
        made = Project(runtime)
        for language in LANGUAGES:
            made.add(EXAMPLES / f"stats-{language}")
            made.approve(f"stats-{language}")
        yield made


@pytest.fixture
def fresh() -> Iterator[Project]:
    with Runtime.temporary(pool=False) as runtime:
        yield Project(runtime)


def edited(folder: Path, path: str, old: str, new: str) -> None:
    file = folder / path
    text = file.read_text()
    assert old in text, f"{old!r} is not in {path}"
    file.write_text(text.replace(old, new))


@pytest.mark.req("000-103", "000-104", "000-105", "000-106")
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_function_of_a_package_is_called_in_the_sandbox(project: Project, language: str) -> None:
    result = project.call(f"stats-{language}:words", text="drei größe Worte").check()
    assert result.output == {"words": 3, "characters": 16}
    assert project.call(f"stats-{language}:longest", text="a größe bc").output == "größe"


@pytest.mark.req("000-106")
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_operation_that_is_not_mapped_is_refused(project: Project, language: str) -> None:
    result = project.call(f"stats-{language}:other", text="x")
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("OPERATION_UNKNOWN",))


@pytest.mark.parametrize(
    ("language", "kind"),
    [
        ("python", "ValueError"),
        ("node", "RangeError"),
        ("go", "*errors.errorString"),
        ("rust", "alloc::string::String"),
    ],
)
def test_an_exception_is_an_ending_with_its_type_and_message(
    project: Project, language: str, kind: str
) -> None:
    result = project.call(f"stats-{language}:longest", text=" ")
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.output == {"error": {"type": kind, "message": "the text has no word"}}
    assert result.result is not None and result.result.exit_code == 1
    assert f"{kind}: the text has no word" in (result.result.error_reason or "")


def test_what_is_wrong_with_a_call_is_refused_before_anything_runs(project: Project) -> None:
    missing = project.rt.exec("stats-python:words")
    assert missing.reason_codes == ("ARGS_INVALID",)
    raw = project.rt.exec("stats-python:words", "x", stdin="y", parameters={"text": "z"})
    assert [each.field for each in raw.violations] == ["inputs.arguments", "inputs.stdin"]


def test_an_operation_that_is_mapped_but_not_in_scope_is_blocked(fresh: Project) -> None:
    folder = fresh.add(EXAMPLES / "stats-python")
    edited(folder, "tool.yaml", "commands: [words, longest]", "commands: [words]")
    fresh.approve("stats-python")
    assert fresh.call("stats-python:words", text="a b").output["words"] == 2
    assert fresh.call("stats-python:longest", text="a b").reason_codes == ("IV_01",)


BEHAVIOURS = """
import os, sys

def noisy(**given):
    print("printed")
    os.write(1, b"written")
    os.system("echo from a child")
    return given

async def later(text):
    import asyncio
    await asyncio.sleep(0)
    return text.upper()

class Client:
    @staticmethod
    def get(text):
        return [text]

def not_json(text):
    return {1, 2}

def nan(text):
    return float("nan")

def leaves(text):
    os._exit(0)

def exits(text):
    sys.exit("gone")

def where(text):
    import importlib.util
    return [importlib.util.find_spec(name) is not None for name in ("json", "yaml", "apt_pkg")]

def big(text):
    return "x" * 2_000_000
"""

MAPPED = {
    "noisy": "noisy",
    "later": "later",
    "get": "Client.get",
    "not_json": "not_json",
    "nan": "nan",
    "leaves": "leaves",
    "exits": "exits",
    "where": "where",
    "big": "big",
    "gone": "no_such_function",
}


def behaving(fresh: Project) -> None:
    folder = fresh.add(EXAMPLES / "stats-python", "odd")
    edited(folder, "tool.yaml", "name: stats-python", "name: odd")
    edited(folder, "tool.yaml", "[words, longest]", json.dumps(list(MAPPED)))
    mapping = "".join(f"\n      {key}: {value}" for key, value in MAPPED.items())
    edited(
        folder,
        "adapters/stats-python.yaml",
        "\n      words: words\n      longest: longest",
        mapping,
    )
    (folder / "lib/textstats/count.py").write_text(BEHAVIOURS)
    fresh.approve("odd")


def test_the_driver_holds_whatever_the_package_does(fresh: Project) -> None:
    behaving(fresh)
    noisy = fresh.call("odd:noisy", text="x").check()
    assert noisy.output == {"text": "x"}
    assert noisy.result is not None
    assert {"printed", "written", "from a child"} <= {
        word for word in ("printed", "written", "from a child") if word in noisy.result.stderr
    }
    assert fresh.call("odd:later", text="x").output == "X"
    assert fresh.call("odd:get", text="x").output == ["x"]
    assert fresh.call("odd:not_json", text="x").output["error"]["type"] == "TypeError"
    assert fresh.call("odd:nan", text="x").output["error"]["type"] == "ValueError"
    assert fresh.call("odd:exits", text="x").output["error"]["type"] == "SystemExit"
    assert fresh.call("odd:gone", text="x").output["error"]["type"] == "FunctionNotFound"
    assert fresh.call("odd:leaves", text="x").outcome is Outcome.OUTPUT_INVALID
    assert fresh.call("odd:big", text="x").outcome is Outcome.OUTPUT_INVALID
    # The standard library, but none of the packages that happen to be installed on the host.
    assert fresh.call("odd:where", text="x").output == [True, False, False]


@pytest.mark.req("000-104")
@pytest.mark.parametrize("language", ["python", "node"])
def test_a_package_that_is_not_there_is_named(fresh: Project, language: str) -> None:
    folder = fresh.add(EXAMPLES / f"stats-{language}")
    edited(folder, f"adapters/stats-{language}.yaml", "package: textstats", "package: elsewhere")
    fresh.approve(f"stats-{language}")
    result = fresh.call(f"stats-{language}:words", text="x")
    assert result.output["error"]["type"] == "PackageNotFound"
    assert "elsewhere" in result.output["error"]["message"]


def other_package(folder: Path, language: str) -> None:
    """A second package beside the first, which is there and has no module `count`."""
    lib = folder / "lib" / "elsewhere"
    lib.mkdir()
    if language == "python":
        (lib / "__init__.py").touch()
    else:
        (lib / "package.json").write_text('{"name": "elsewhere", "main": "index.js"}')
        (lib / "index.js").touch()


@pytest.mark.req("000-104")
@pytest.mark.parametrize("language", ["python", "node"])
def test_a_module_of_another_package_is_refused(fresh: Project, language: str) -> None:
    name = f"stats-{language}"
    folder = fresh.add(EXAMPLES / name)
    other_package(folder, language)
    fresh.approve(name)
    assert fresh.call(f"{name}:words", text="x").check().output["words"] == 1  # the control
    edited(folder, f"adapters/{name}.yaml", "package: textstats", "package: elsewhere")
    fresh.approve(name)
    result = fresh.call(f"{name}:words", text="x")
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.output["error"]["type"] == "ModuleOutsidePackage"
    assert "elsewhere" in result.output["error"]["message"]


@pytest.mark.req("000-104")
def test_the_metadata_of_a_python_package_names_its_modules(fresh: Project) -> None:
    folder = fresh.add(EXAMPLES / "stats-python")
    about = folder / "lib" / "Text_Statistics-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: Text-Statistics\nVersion: 1.0\n")
    (about / "RECORD").write_text("textstats/__init__.py,,\ntextstats/count.py,,\n")
    path = "adapters/stats-python.yaml"
    edited(folder, path, "package: textstats", "package: Text-Statistics")
    fresh.approve("stats-python")
    assert fresh.call("stats-python:words", text="x").check().output["words"] == 1
    edited(folder, path, "import_path: textstats.count", "import_path: os.path")
    fresh.approve("stats-python")
    refused = fresh.call("stats-python:words", text="x")
    assert refused.output["error"]["type"] == "ModuleOutsidePackage"


@pytest.mark.req("000-104")
@pytest.mark.parametrize("language", COMPILED)
def test_a_path_outside_the_package_is_refused_at_the_approval(
    fresh: Project, language: str
) -> None:
    name = f"stats-{language}"
    folder = fresh.add(EXAMPLES / name)
    fresh.approve(name)  # the control
    edited(folder, f"adapters/{name}.yaml", "package: textstats", "package: elsewhere")
    with pytest.raises(ContractInvalid) as invalid:
        fresh.approve(name)
    assert [each.field for each in invalid.value.problems] == ["interface.sdk.import_path"]


@pytest.mark.req("000-104")
@pytest.mark.parametrize(
    ("language", "manifest", "content"),
    [
        ("go", "go.mod", "module textstats\n\ngo 1.18\n"),
        ("rust", "Cargo.toml", '[package]\nname = "textstats"\nversion = "1.0.0"\n'),
    ],
)
def test_sources_that_name_another_package_are_refused(
    fresh: Project, language: str, manifest: str, content: str
) -> None:
    name = f"stats-{language}"
    folder = fresh.add(EXAMPLES / name)
    (folder / "lib" / manifest).write_text(content)
    fresh.approve(name)
    assert fresh.call(f"{name}:words", text="x").check().output["words"] == 1  # the control
    adapter = f"adapters/{name}.yaml"
    edited(folder, adapter, "package: textstats", "package: elsewhere")
    edited(folder, adapter, "import_path: textstats", "import_path: elsewhere")
    fresh.approve(name)
    refused = fresh.call(f"{name}:words", text="x")
    assert (refused.outcome, refused.reason_codes) == (Outcome.REJECTED, ("PACKAGE_MISMATCH",))


@pytest.mark.req("000-105")
@pytest.mark.parametrize("language", ["python", "node"])
def test_a_module_that_is_not_there_is_an_exception_of_the_import(
    fresh: Project, language: str
) -> None:
    folder = fresh.add(EXAMPLES / f"stats-{language}")
    path = f"adapters/stats-{language}.yaml"
    edited(folder, path, "count\n", "nothing\n")
    fresh.approve(f"stats-{language}")
    result = fresh.call(f"stats-{language}:words", text="x")
    assert result.outcome is Outcome.TOOL_ERROR
    assert "nothing" in result.output["error"]["message"]


@pytest.mark.req("000-105")
@pytest.mark.parametrize(
    ("language", "module", "path"),
    [("python", "count.py", "textstats.deep.count"), ("node", "count.mjs", "./deep/count.mjs")],
)
def test_a_module_in_a_folder_of_its_package_is_the_one_that_is_imported(
    fresh: Project, language: str, module: str, path: str
) -> None:
    """Another module of the same name lies beside the folder."""
    folder = fresh.add(EXAMPLES / f"stats-{language}")
    package = folder / "lib/textstats"
    (package / "deep").mkdir()
    (package / module).rename(package / "deep" / module)
    other = {
        "python": "def words(text):\n    return 'another module'\n",
        "node": "export const words = () => 'another module';\n",
    }
    (package / module).write_text(other[language])
    adapter = f"adapters/stats-{language}.yaml"
    written = "textstats.count" if language == "python" else "textstats/count"
    edited(folder, adapter, f"import_path: {written}", f"import_path: {path}")
    fresh.approve(f"stats-{language}")
    result = fresh.call(f"stats-{language}:words", text="a b").check()
    assert result.output == {"words": 2, "characters": 3}


def test_nothing_is_imported_into_our_own_process(fresh: Project) -> None:
    import sys

    folder = fresh.add(EXAMPLES / "stats-python")
    mark = folder / "lib/textstats/__init__.py"
    mark.write_text("import os\nopen('/tmp/imported-by-us', 'w').close()\n")
    fresh.approve("stats-python")
    assert fresh.call("stats-python:words", text="a").output["words"] == 1
    assert "textstats" not in sys.modules
    assert not Path("/tmp/imported-by-us").exists()  # inside, it was a file of the scratch


@pytest.mark.parametrize("language", ["python", "node"])
def test_packages_elsewhere_are_read_where_the_policy_reaches(
    fresh: Project, language: str
) -> None:
    name = f"stats-{language}"
    folder = fresh.add(EXAMPLES / name)
    place = {
        "python": "vendor/venv/lib/python{}.{}/site-packages",
        "node": "vendor/node_modules",
    }[language]
    import subprocess

    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    shutil.move(folder / "lib", fresh.root / place.format(*version))
    declared = {"python": "vendor/venv", "node": "vendor/node_modules"}[language]
    edited(folder, "tool.yaml", "folder: lib", f"path: {declared}")
    edited(folder, "tool.yaml", "data_access: none", "data_access: read")
    fresh.approve(name)
    assert fresh.call(f"{name}:words", text="a b").check().output["words"] == 2
    # Out of reach of a call that may read nothing of the project.
    refused = fresh.rt.exec(
        f"{name}:words",
        parameters={"text": "x"},
        set={"inputs.working_directory": "scratch:"},
    )
    assert refused.reason_codes == ("IV_03",)
    assert refused.violations[0].field == "tool.yaml packages.path"


def test_a_file_of_the_package_that_was_changed_is_refused(fresh: Project) -> None:
    folder = fresh.add(EXAMPLES / "stats-python")
    fresh.approve("stats-python")
    assert fresh.call("stats-python:words", text="a").ok
    edited(folder, "lib/textstats/count.py", "len(text.split())", "7")
    assert fresh.call("stats-python:words", text="a").reason_codes == ("TOOL_CHANGED",)
    fresh.approve("stats-python")
    assert fresh.call("stats-python:words", text="a").output["words"] == 7


def test_a_parameter_that_is_a_path_is_judged_as_one(fresh: Project) -> None:
    folder = fresh.add(EXAMPLES / "stats-python")
    edited(folder, "tool.yaml", "x-actum: literal", "x-actum: path")
    edited(folder, "tool.yaml", "data_access: none", "data_access: read")
    fresh.approve("stats-python")
    (fresh.root / "notes.txt").write_text("x")
    assert fresh.call("stats-python:words", text="notes.txt").ok
    assert fresh.call("stats-python:words", text="/etc/shadow").reason_codes == ("IV_03",)


@pytest.mark.parametrize("language", COMPILED)
def test_a_program_is_compiled_once_kept_and_verified_when_it_is_used(
    fresh: Project, language: str
) -> None:
    name = f"stats-{language}"
    folder = fresh.add(EXAMPLES / name)
    fresh.approve(name)
    executions = fresh.rt.services.executions

    def compilations() -> int:
        (count,) = fresh.rt.database.row("SELECT count(*) FROM executions") or (0,)
        return int(count)

    assert fresh.rt.check(fresh.rt.draft(_ask(name))).violations == ()  # foreseen, not compiled
    before = compilations()
    first = fresh.call(f"{name}:words", text="a b").check()
    assert compilations() == before + 2  # compiling has a record and a receipt of its own
    assert executions.get(first.execution_id) is not None
    assert fresh.call(f"{name}:words", text="a b").ok
    assert compilations() == before + 3

    (program,) = [p for p in (fresh.root / ".actum/programs").iterdir() if not p.suffix]
    sound = program.read_bytes()
    program.write_bytes(b"#!/bin/sh\necho '{\"value\": 666}'\n")
    assert fresh.call(f"{name}:words", text="a b").output == {"words": 2, "characters": 3}
    assert program.read_bytes() == sound
    assert compilations() == before + 5  # refused and made again

    source = {"go": "lib/count/count.go", "rust": "lib/lib.rs"}[language]
    with (folder / source).open("a") as file:
        file.write("// another digest\n")
    fresh.approve(name)
    assert fresh.call(f"{name}:words", text="a b").ok
    assert compilations() == before + 7


def test_a_program_that_nobody_uses_is_removed_and_made_again(fresh: Project) -> None:
    fresh.add(EXAMPLES / "stats-rust")
    fresh.approve("stats-rust")
    assert fresh.call("stats-rust:words", text="a").ok
    home = fresh.root / ".actum"
    assert remove_unused(home) == (0, 0)
    (program,) = [path for path in (home / "programs").iterdir() if not path.suffix]
    os.utime(program, (0, 0))
    assert fresh.call("stats-rust:words", text="a").ok
    assert remove_unused(home) == (0, 0)  # control: it was used just now
    os.utime(program, (0, 0))
    assert remove_unused(home)[0] == 2
    assert list((home / "programs").iterdir()) == []
    assert fresh.call("stats-rust:words", text="a").ok


def test_many_first_calls_at_once_compile_once(fresh: Project) -> None:
    fresh.add(EXAMPLES / "stats-go")
    fresh.approve("stats-go")
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(fresh.call, "stats-go:words", text="a b") for _ in range(4)]
        assert {call.result().output["words"] for call in calls} == {2}
    assert fresh.rt.database.row("SELECT count(*) FROM executions") == (5,)
    (told,) = (fresh.root / ".actum/programs").glob("*.json")
    compiled = fresh.rt.services.executions.get(json.loads(told.read_text())["execution_id"])
    assert compiled is not None


def _ask(name: str) -> Any:
    from actum.contract.request import ExecRequest

    return ExecRequest(tool=f"{name}:words", parameters={"text": "a"})


@pytest.mark.parametrize("language", COMPILED)
def test_sources_that_do_not_compile_are_refused_with_what_the_compiler_said(
    fresh: Project, language: str
) -> None:
    name = f"stats-{language}"
    folder = fresh.add(EXAMPLES / name)
    wrong = {"go": "longest: Unlongest", "rust": "longest: unlongest"}[language]
    right = {"go": "longest: Longest", "rust": "longest: longest"}[language]
    edited(folder, f"adapters/{name}.yaml", right, wrong)
    fresh.approve(name)
    result = fresh.call(f"{name}:words", text="a")
    assert result.reason_codes == ("COMPILE_FAILED",)
    assert not (fresh.root / ".actum/programs").exists()


@pytest.mark.parametrize("language", COMPILED)
def test_a_missing_toolchain_is_refused_with_its_remedy(fresh: Project, language: str) -> None:
    name = f"stats-{language}"
    folder = fresh.add(EXAMPLES / name)
    with (folder / "tool.yaml").open("a") as file:
        file.write("path: [/nonexistent]\n")
    fresh.approve(name)
    forecast = fresh.rt.check(fresh.rt.draft(_ask(name)))
    assert [each.code for each in forecast.violations] == ["TOOLCHAIN_MISSING"]
    assert "apt-get install" in forecast.violations[0].message
    assert fresh.call(f"{name}:words", text="a").reason_codes == ("TOOLCHAIN_MISSING",)


def test_a_panic_is_an_ending_too(fresh: Project) -> None:
    folder = fresh.add(EXAMPLES / "stats-go")
    edited(folder, "lib/count/count.go", 'longest := ""', 'longest := ""\n\tpanic("help")')
    fresh.approve("stats-go")
    result = fresh.call("stats-go:longest", text="a")
    assert result.output == {"error": {"type": "panic", "message": "help"}}


def test_output_transforms_apply_to_what_the_function_returned(fresh: Project) -> None:
    folder = fresh.add(EXAMPLES / "stats-python")
    edited(
        folder,
        "adapters/stats-python.yaml",
        "metadata:",
        "transforms:\n  output:\n    - {type: extract, spec: $.words}\n\nmetadata:",
    )
    fresh.approve("stats-python")
    assert fresh.call("stats-python:words", text="a b c").output == 3


def test_a_function_that_sees_no_data_is_served_by_an_interpreter_that_waits() -> None:
    with Runtime.temporary(pool=True) as runtime:
        made = Project(runtime)
        folder = made.add(EXAMPLES / "stats-python")
        with (folder / "lib/textstats/count.py").open("a") as file:
            file.write("\nimport os, time\nBORN = time.monotonic_ns()\nCALLS = []\n")
            file.write("def words(*, text):\n    CALLS.append(text)\n")
            file.write("    return [BORN, time.monotonic_ns(), CALLS, os.listdir('.')]\n")
        made.approve("stats-python")
        made.call("stats-python:words", text="cold").check()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # until one had the time to import
            time.sleep(0.2)
            asked = time.monotonic_ns()
            born, called, calls, seen = made.call("stats-python:words", text="warm").check().output
            if born < asked:
                break
        assert born < asked < called  # imported before anybody asked
        assert (calls, seen) == (["warm"], [])  # and used once
        # Where the project is in reach, nothing is imported ahead.
        edited(folder, "tool.yaml", "data_access: none", "data_access: read")
        made.approve("stats-python")
        asked = time.monotonic_ns()
        born, _, _, seen = made.call("stats-python:words", text="x").check().output
        assert born > asked and "tools" in seen
