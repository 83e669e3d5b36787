"""The quick reading of `actum exec` means what the full one means, or leaves it alone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.doors.cli import exec_command, light_exec, sh_command
from actum.doors.cli.light_exec import script_words, understood

_OPTIONS = [
    *light_exec._ONCE,
    *light_exec._OFTEN,
    "--json",
    "--raw",
    "--save",
    "--wait",
    "--exit-code",
    "-f",
    "-h",
]
_words = st.one_of(
    st.sampled_from([*_OPTIONS, "--", "-", "", "shell", "git:log", "a=b", "--nope", "-px=1"]),
    st.builds("{}={}".format, st.sampled_from(_OPTIONS), st.sampled_from(["", "x", "a=b", "-"])),
    st.text(max_size=5),
)


def by_the_library(command: str, arguments: list[str]) -> dict[str, Any] | None:
    module = {"exec": exec_command, "sh": sh_command}[command]
    try:
        context = module.command.make_context(command, list(arguments))
    except click.ClickException:
        return None
    common = {
        "home": context.meta.get("actum.home"),
        "session": context.meta.get("actum.session"),
        "as_json": bool(context.meta.get("actum.json")),
    }
    found = {**context.params, **common}
    if command == "sh":
        found |= {"contract": None, **script_words(found["words"])}
    return found


def assert_alike(arguments: list[str], command: str = "exec") -> bool:
    quick = understood([command, *arguments])
    if quick is None:
        return False
    full = by_the_library(command, arguments)
    assert full is not None
    assert (full.pop("save"), full.pop("whose_code"), full.pop("wait")) == (None, "actum", None)
    assert quick == full
    return True


@given(st.lists(_words, max_size=7))
def test_whatever_is_understood_is_understood_alike(arguments: list[str]) -> None:
    assert_alike(arguments)
    assert_alike(arguments, "sh")


@pytest.mark.parametrize(
    ("arguments", "script"),
    [
        (["ls -la"], ("ls -la",)),
        (["ls", "-la", "--json"], ("ls", "-la", "--json")),
        (["--json", "--timeout", "5s", "--", "-x", "--", "y"], ("-x", "--", "y")),
        ([], ()),
    ],
)
def test_options_of_sh_come_before_the_first_word(
    arguments: list[str], script: tuple[str, ...]
) -> None:
    assert assert_alike(arguments, "sh")
    found = understood(["sh", *arguments])
    assert found is not None
    assert (found["words"], found["script"]) == (("shell",), script)


@pytest.mark.parametrize(
    "arguments",
    [
        ["shell"],
        ["shell", "--stdin", "-"],
        ["--raw", "shell", "--stdin", "-"],
        ["--json", "--stdin=/dev/null", "shell", "--timeout", "5s", "--timeout", "6s"],
        ["-p", "pattern=x", "ripgrep", "-p", "ignore_case=true", "--set", "sandbox.memory_mb=64"],
        ["git:log", "--", "--oneline", "-n", "3", "--json"],
        ["--home", "/nowhere", "--session", "s", "--as", "user:ada", "shell", "a", "--env", "-x"],
    ],
)
def test_the_everyday_forms_are_understood(arguments: list[str]) -> None:
    assert assert_alike(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["check", "shell"],
        ["--json", "exec", "shell"],
        ["exec"],
        ["exec", "--help"],
        ["exec", "shell", "--stdin"],
        ["exec", "shell", "--unknown", "x"],
        ["exec", "-f", "contract.yaml"],
        ["exec", "shell", "--wait"],
        ["exec", "shell", "--json=yes"],
        ["exec", "shell", "--raw=yes"],
        ["exec", "shell", "--home", __file__],
    ],
)
def test_the_rest_is_left_to_the_library(arguments: list[str]) -> None:
    assert understood(arguments) is None


def test_a_plain_execution_loads_neither_the_library_nor_what_it_does_not_need(tmp_path) -> None:
    program = (
        "import sys; from actum.doors.cli.main import _run\n"
        "_run(['init', '.', '--runner', 'local'])\n"
        "import subprocess as s; run = [sys.executable, '-c', {!r}]\n"
        "s.run(run); sys.exit(s.run(run).returncode)\n"
    ).format(
        "import sys; from actum.doors.cli.main import _run\n"
        "code = _run(['exec', 'shell', '--stdin', 'script'])\n"
        "heavy = {'click', 'yaml', 'inspect', 'dataclasses', 'uuid', 'tempfile', 'shutil',\n"
        "         'importlib.resources', 'asyncio', 'mcp', 'difflib', 'glob',\n"
        "         'actum.registry.coherence', 'actum.package_clients', 'actum.policy.git_config',\n"
        "         'actum.images.image_intake', 'actum.adapters.sdk', 'actum.adapters.mcp',\n"
        "         'cryptography.hazmat.primitives.serialization'} & set(sys.modules)\n"
        "print('code', code, 'heavy', heavy)\n"
    )
    (tmp_path / "script").write_text("true")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    # The first one parses the tool and remembers it; the second is the everyday one.
    assert done.stdout.splitlines()[-1] == "code 0 heavy set()", done.stdout + done.stderr
