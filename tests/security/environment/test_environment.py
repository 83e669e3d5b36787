"""The environment is built from nothing: only declared names arrive, with their exact values."""

from __future__ import annotations

import pytest

from actum import ContractInvalid
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

BASELINE = {"PATH", "HOME", "TMPDIR", "LANG", "TZ", "PYTHONHASHSEED", "ACTUM_ARTIFACTS"}
ENV = "import os\nfor n, v in sorted(os.environ.items()): print(f'{n}={v}')"

NEVER = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "LD_DEBUG",
    "BASH_ENV",
    "ENV",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "NODE_OPTIONS",
    "GLIBC_TUNABLES",
    "PERL5OPT",
    "RUBYOPT",
    "GIT_SSH_COMMAND",
    "IFS",
    "PATH",
    "HOME",
    "ACTUM_HOME",
    "UNDECLARED_NAME",
]


def _names(jail: Jail, **env: str) -> dict[str, str]:
    lines = jail.said(jail.python(ENV, env=env)).splitlines()
    found = dict(line.split("=", 1) for line in lines)
    found.pop("LC_CTYPE", None)  # Python adds it to itself
    return found


@pytest.mark.req("000-7")
def test_only_the_baseline_arrives_when_nothing_is_asked(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "leak")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "leak")
    assert "HOST_SECRET=leak" in jail.outside_python(ENV)
    found = _names(jail)
    assert set(found) == BASELINE
    assert "leak" not in str(found)


@pytest.mark.req("000-7")
@pytest.mark.parametrize("name", NEVER)
def test_a_name_that_makes_programs_do_more_is_stripped(jail: Jail, name: str) -> None:
    found = _names(jail, **{name: "/evil"})
    assert "/evil" not in found.values()
    assert set(found) == BASELINE


@pytest.mark.req("000-7")
def test_a_declared_name_arrives_with_its_exact_value(jail: Jail) -> None:
    value = "ü = \"quoted\" 'and' $HOME `x` \\ ; tab\there"
    found = _names(jail, TERM=value, NO_COLOR="")
    assert found == {**_names(jail), "TERM": value, "NO_COLOR": ""}


@pytest.mark.parametrize("value", ["a\0b", "x\0LD_PRELOAD=/evil"])
def test_a_zero_byte_cannot_smuggle_another_name(jail: Jail, value: str) -> None:
    try:
        result = jail.python(ENV, env={"TERM": value})
    except ContractInvalid:
        return
    assert result.result is None or "LD_PRELOAD" not in result.result.stdout


def test_a_preloaded_library_is_not_loaded(jail: Jail) -> None:
    """Not only the name is gone: nothing acts on it."""
    script = (
        "cat /proc/self/maps | grep -c evil; cat /proc/self/environ | tr '\\0' '\\n' | grep -c LD_"
    )
    assert jail.said(jail.sh(script + "; true", env={"LD_PRELOAD": "/evil.so"})) == "0\n0"


@pytest.mark.req("000-6")
def test_arguments_arrive_one_by_one_and_unchanged(jail: Jail) -> None:
    arguments = ["plain", "two words", "", "$HOME", "`id`", "a;b|c&d", "*", "--flag", "ü\n", "'\""]
    program = "import sys; print(ascii(sys.argv[1:]))"
    assert jail.said(jail.python(program, *arguments)) == ascii(arguments)
