"""There is one way to start a tool. This reads every line of the source for a second one.

What starts a process is found by name, in any module, under any alias; the list below says who may
use which of them, and why. The same promise is watched at run time in
tests/crash/test_who_starts_what.py.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import actum

SOURCE = Path(actum.__file__).parent

#: Modules whose purpose is to start processes, or with which anything can be called.
_MODULES = {
    *("subprocess", "multiprocessing", "pty", "popen2", "_posixsubprocess", "pexpect", "sh"),
    *("asyncio.subprocess", "docker", "ctypes", "cffi", "runpy"),
}
#: Functions that do it, as attributes of anything or as imported names.
_CALLS = {
    *("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen"),
    *("execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe"),
    *("spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp", "spawnvpe"),
    *("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"),
    *("clone_process", "clone_sibling", "clone_into_cgroup", "ProcessPoolExecutor", "Popen"),
}
_HIDDEN = {"__import__", "exec", "eval"}

#: File -> what it may use. Each line is a decision.
ALLOWED: dict[str, set[str]] = {
    # Raw system calls live in the first; who may call those that fork is decided below. It forks
    # by itself only a helper that holds a user namespace, and starts nothing in it. The others
    # install filters and rules, which has no other interface.
    "kernel.py": {"ctypes", "fork"},
    "sandbox/landlock.py": {"ctypes"},
    "sandbox/seccomp.py": {"ctypes"},
    # Starts the spawner; every argument is ours.
    "sandbox/spawner_client.py": {"subprocess", "Popen"},
    # Starts the process that spawners of work items are cloned from, and clones them.
    "sandbox/spawner_clone.py": {"subprocess", "Popen"},
    "sandbox/spawner_source.py": {"clone_process"},
    # Forks the opener and the zygote, and becomes the program that clones inits (jail/serve.c).
    "sandbox/spawner.py": {"fork", "execve"},
    # Clones the inits beside which an interpreter is forked; they execute the jail's program.
    "sandbox/zygote.py": {"clone_process", "execve"},
    # Becomes an interpreter; what it was asked for and cannot be, it executes.
    "sandbox/snippet_fork.py": {"fork", "clone_into_cgroup", "execve"},
    # Asks the operator's own password store, which is no tool: named in actum.toml, on the host.
    "secrets/providers.py": {"subprocess", "Popen"},
    # Runs *inside* a sandbox, as the tool: a snippet of Python is its payload.
    # It starts itself again if a module has changed since it was imported.
    "sandbox/snippet_program.py": {"exec", "eval", "__import__", "execv"},
    # Inside as well: forks the interpreter of a session, and makes itself undumpable.
    "sandbox/session_program.py": {"fork", "ctypes"},
    # Runs *inside* a sandbox, as the tool: the command of an agent is its payload.
    "work/agents/inside/agent.py": {"subprocess"},
    # Starts Actum itself again: the process that those of work items are cloned from. A clone runs
    # Actum's own code only.
    "work/item_process.py": {"subprocess", "Popen"},
    "doors/work_item_process.py": {"clone_sibling"},
    # Asks the user's own git for one setting, in `/` and without a repository.
    "workspace/host_git.py": {"subprocess"},
    # Starts a process that compares what an MCP server said with its schema, and can open nothing.
    "mcp/output_schema.py": {"subprocess", "Popen"},
    # Pure executors are no tools: their processes can open, connect to and exec nothing. The pool
    # starts the fork server, which starts itself again once without address randomisation.
    "executors/pool.py": {"subprocess", "Popen"},
    "executors/fork_server.py": {"ctypes", "clone_process", "execve"},
    "executors/clone_source.py": {"clone_sibling"},
    "executors/child.py": {"exec"},
    "executors/filter.py": {"ctypes"},
    "executors/vdso.py": {"ctypes"},
    # Compiles an `__init__` from the field names of our own classes.
    "value.py": {"exec"},
    # Names it as forbidden.
    "executors/lint.py": {"popen"},
}


#: Take the name of a module or an attribute as text.
_BY_NAME = frozenset({"import_module", "__import__", "getattr", "attrgetter", "methodcaller"})


def _name_of(called: ast.expr) -> str:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in _MODULES)
            case ast.ImportFrom(module=module, names=names):
                imported = {module, *(f"{module}.{alias.name}" for alias in names)}
                yield from (str(name) for name in imported & _MODULES)
                yield from (alias.name for alias in names if alias.name in _CALLS)
            case ast.Attribute(attr=attribute) if attribute in _CALLS:
                yield attribute
            case ast.Call(func=ast.Name(id=name)) if name in _HIDDEN:
                yield name
            case ast.Call(func=called, args=[*_, ast.Constant(value=str() as text)]) if (
                _name_of(called) in _BY_NAME and text.partition(".")[0] in _CALLS | _MODULES
            ):
                yield text  # also "fork" and "system", which are ordinary words elsewhere
            case ast.Call(func=called, args=[ast.Constant(value=str() as text), *_]) if (
                _name_of(called) in _BY_NAME and text in _MODULES
            ):
                yield text
            case ast.Constant(value=str() as text) if text in _CALLS - {"fork", "system"}:
                yield text  # for getattr


def _names(file: Path) -> set[str]:
    return set(_used(ast.parse(file.read_text())))


def _callers(attribute: str) -> dict[str, int]:
    """File -> how often it calls something of this name."""
    found = {}
    for file in SOURCE.rglob("*.py"):
        calls = [
            node
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == attribute
        ]
        if calls:
            found[str(file.relative_to(SOURCE))] = len(calls)
    return found


def _callers_in_c(names: str) -> Counter[str]:
    """Where the jail's own program calls something of these names."""
    return _named_in_c(names, then=r" *\(")


def _named_in_c(names: str, then: str = "") -> Counter[str]:
    found: Counter[str] = Counter()
    for file in (SOURCE / "sandbox/jail").glob("*.c"):
        code = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
        named = re.findall(rf"\b({names})\b{then}", code)
        found.update(f"{file.name}: {name}" for name in named)
    return found


@pytest.mark.req("004-78")
def test_nothing_but_the_jail_starts_processes():
    found = {}
    for file in SOURCE.rglob("*.py"):
        name = str(file.relative_to(SOURCE))
        if beyond := _names(file) - ALLOWED.get(name, set()):
            found[name] = beyond
    assert found == {}


def test_the_list_of_exceptions_is_no_longer_than_needed():
    unused = {
        name: allowed - _names(SOURCE / name)
        for name, allowed in ALLOWED.items()
        if allowed - _names(SOURCE / name)
    }
    assert unused == {}


@pytest.mark.parametrize(
    "line",
    [
        "import subprocess as s",
        "from subprocess import run",
        "from os import execv as go",
        "import os; os.posix_spawn('/bin/true', [], {})",
        "from asyncio import subprocess",
        "import asyncio; asyncio.create_subprocess_exec('true')",
        "import os; getattr(os, 'execve')('/bin/true', [], {})",
        "exec('import subprocess')",
        "import importlib; importlib.import_module('subprocess')",
        "from importlib import import_module as i; import_module('subprocess', None)",
        "__import__('subprocess').run(['true'])",
        "import os; getattr(os, 'fork')()",
        "import os; getattr(os, 'system')('true')",
        "import operator, os; operator.attrgetter('fork')(os)()",
        "import concurrent.futures as f; f.ProcessPoolExecutor()",
    ],
)
def test_the_reader_would_notice(line: str):
    assert set(_used(ast.parse(line)))


@pytest.mark.req("004-78")
def test_there_is_one_exec_of_a_tool_and_one_caller_on_the_way_to_it():
    """pipeline.execute -> runner.run -> Spawner.launch -> init -> execve, in C; or, from a fork
    that was to become an interpreter and cannot, in Python."""
    assert _callers("execve") == {
        "sandbox/spawner.py": 2,  # itself, and the opener
        "sandbox/zygote.py": 1,
        "sandbox/snippet_fork.py": 1,
        "executors/fork_server.py": 1,
    }
    assert _callers_in_c(r"exec\w*|posix_spawn\w*|system|popen") == {"tool.c: execve": 1}
    assert _callers_in_c(r"v?fork|clone3?|__clone") == {}
    numbers = r"SYS_(?:clone3?|fork|vfork|exec\w*)"
    assert _named_in_c(numbers) == {
        "serve.c: SYS_clone": 1,
        "opener.c: SYS_clone": 1,  # holds a user namespace, and nothing is started in it
        "tool.c: SYS_clone3": 1,
        "tool.c: SYS_clone": 1,
    }
    assert _callers("launch") == {"runners/local.py": 1}
    imports = [
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if "sandbox.spawner_client" in file.read_text() and file.name != "spawner_client.py"
    ]
    assert all(name.startswith("runners/") for name in imports), imports


@pytest.mark.req("004-14", "004-74", "004-75", "004-77")
def test_a_runner_knows_no_registry_no_adapter_and_no_validation():
    """What would be needed to choose a tool, judge an argument or call a second tool is not there:
    neither imported, nor reachable through what a runner is given."""
    forbidden = (
        *("actum.registry", "actum.adapters", "actum.execution", "actum.policy", "actum.executors"),
        *("actum.approvals", "actum.determinism", "actum.golden", "actum.mcp", "actum.work"),
        *("actum.documents.json_schema", "actum.contract.parse", "actum.store", "actum.runtime"),
    )
    found = []
    for file in (SOURCE / "runners").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            found += [
                f"{file.name}: {name}" for name in names for each in forbidden if each in name
            ]
    assert found == []
