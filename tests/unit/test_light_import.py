"""What is imported, when: a library that is not needed costs nobody anything."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PYTHON = sys.executable

#: What starting the spawner imports: the jail's own files, which run before any wall stands.
_JAIL = "spawner identity zygote packets snippet_fork root seccomp system_calls landlock"
_JAIL += " proc_files wire snippet_interpreter"
#: Loaded when the first snippet is asked for.
LEARNT = ("sandbox/snippet_program", "sandbox/value_program", "sandbox/working_files_program")
SPAWNER = ("kernel", *(f"sandbox/{name}" for name in _JAIL.split()))
#: The process that the spawners of work items are cloned from.
SOURCE_OF_SPAWNERS = "sandbox/spawner_source"
HEAVY = {"asyncio", "sqlite3", "yaml", "click", "jsonschema_rs", "cryptography"}
#: Web, database toolkits, MCP: doors and runs that were not asked for.
ELSEWHERE = {"fastapi", "starlette", "uvicorn", "httpx", "aiohttp", "flask", "sqlalchemy"}
ELSEWHERE |= {"alembic", "psycopg", "dbos", "mcp", "anyio", "pydantic", "docker", "requests"}


def imported_by(statement: str, *flags: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after `statement` and not before."""
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(SOURCE)!r})\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "import json\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    answer = subprocess.run(
        [PYTHON, *flags, "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    return set(json.loads(answer.stdout))


def tops(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def foreign(modules: set[str]) -> set[str]:
    return tops(modules) - set(sys.stdlib_module_names) - {"actum"}


def test_importing_actum_loads_nothing_but_itself() -> None:
    modules = imported_by("import actum", "-I")
    assert "actum" in modules
    assert foreign(modules) == set()
    assert tops(modules) & HEAVY == set()


def test_the_front_door_opens_when_something_is_asked_of_it() -> None:
    modules = imported_by("import actum; actum.Runtime", "-I")
    assert "actum.runtime" in modules


def test_wiring_loads_no_door_that_was_not_asked_for() -> None:
    modules = imported_by("import actum.runtime", "-I")
    assert "actum.execution.pipeline" in modules
    assert tops(modules) & ELSEWHERE == set()
    assert not any(name.startswith("actum.doors") for name in modules)


@pytest.mark.parametrize("command", ["--help", "--version"])
def test_asking_for_help_loads_neither_crypto_nor_a_database(command: str) -> None:
    statement = (
        "from actum.doors.cli.main import _run\n"
        "import contextlib, io\n"
        f"with contextlib.redirect_stdout(io.StringIO()): _run([{command!r}])"
    )
    modules = imported_by(statement, "-I")
    assert "click" in modules
    assert tops(modules) & (HEAVY - {"click"}) == set()


@pytest.mark.parametrize("name", [*SPAWNER, SOURCE_OF_SPAWNERS])
def test_a_file_of_the_spawner_names_only_the_standard_library_and_the_jail(name: str) -> None:
    tree = ast.parse((SOURCE / "actum" / f"{name}.py").read_text())
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            module = node.module or ""
            inside = module in ("actum", "actum.sandbox")
            named |= {f"{module}.{alias.name}" for alias in node.names} if inside else {module}
    allowed = {f"actum.{each.replace('/', '.')}" for each in (*SPAWNER, *LEARNT)}
    strange = {each for each in named if each.partition(".")[0] == "actum"} - allowed
    strange |= {each for each in named if each.partition(".")[0] not in _KNOWN}
    assert strange == set()


_KNOWN = {*sys.stdlib_module_names, "actum"}


@pytest.mark.parametrize("of", [(), (SOURCE_OF_SPAWNERS,)])
def test_the_spawner_starts_without_site_packages_and_loads_only_the_jail(
    of: tuple[str, ...],
) -> None:
    started = (*of, "sandbox/spawner")[0].replace("/", ".")
    modules = imported_by(f"import actum.{started}", "-I", "-S")
    ours = {name for name in modules if name.partition(".")[0] == "actum"}
    listed = {f"actum.{each.replace('/', '.')}" for each in (*SPAWNER, *of)}
    assert ours == listed | {"actum", "actum.sandbox"}
    assert foreign(modules) == set()
    # Forked for every sandbox: nothing with threads, and nothing that talks to anybody.
    assert tops(modules) & {"threading", "asyncio", "ssl", "http", "urllib", "subprocess"} == set()
