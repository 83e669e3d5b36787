"""A secret reaches a tool only if it is approved, asked for and there; and only this one start."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from secret_project import NAME, make, open_project

from actum import Outcome, Result, Runtime
from actum.contract.model import RunnerKind
from actum.policy.secret_grants import _MOST
from actum.testing import FakeRunner, captured

VALUE = "correct horse battery/staple+0815"
DIGEST = hashlib.sha256(VALUE.encode()).hexdigest()
#: Only the digest comes out, so that these tests do not depend on redaction.
BY_VARIABLE = f'printf %s "${NAME}" | sha256sum | cut -c1-64'
BY_DESCRIPTOR = f'eval "cat <&$ACTUM_FD_{NAME}" | sha256sum | cut -c1-64'


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPERATORS_TOKEN", VALUE)
    root = make(tmp_path, {NAME: '{ env = "OPERATORS_TOKEN" }'})
    with open_project(root) as opened:
        yield opened


def ask(runtime: Runtime, script: str, how: str | None = "env", **more: object) -> Result:
    fields = {} if how is None else {"inputs.secrets": {NAME: how}}
    root = runtime.settings.root
    return runtime.exec("shell", stdin=script, cwd=root, set={**fields, **more})  # type: ignore[arg-type]


def said(result: Result) -> str:
    assert result.result is not None, result.violations
    return result.result.stdout.strip()


@pytest.mark.sandbox
@pytest.mark.req("004-55")
def test_a_secret_comes_in_by_a_variable(runtime: Runtime) -> None:
    assert said(ask(runtime, BY_VARIABLE)) == DIGEST


@pytest.mark.sandbox
def test_or_by_a_variable_that_the_tool_approves(runtime: Runtime) -> None:
    assert said(ask(runtime, BY_VARIABLE.replace(NAME, "LC_ALL"), "env:LC_ALL")) == DIGEST


@pytest.mark.sandbox
def test_or_by_a_descriptor_that_is_read_once(runtime: Runtime) -> None:
    result = ask(runtime, f"{BY_DESCRIPTOR}; {BY_DESCRIPTOR}; env | grep -c horse", "fd")
    nothing = hashlib.sha256(b"").hexdigest()
    assert said(result).split() == [DIGEST, nothing, "0"]


@pytest.mark.sandbox
def test_as_many_as_one_call_may_have_come_in_by_descriptors(tmp_path: Path) -> None:
    """Whatever the tool's process held at their numbers until then."""
    names = [f"NUMBER_{number}" for number in range(_MOST)]
    sources = {}
    for name in names:
        (tmp_path / name).write_text(f"the value of {name}")
        (tmp_path / name).chmod(0o600)
        sources[name] = f'{{ file = "{tmp_path / name}" }}'
    look = f"""
import hashlib, os
for name in {names}:
    value = os.read(int(os.environ["ACTUM_FD_" + name]), 99)
    print(hashlib.sha256(value).hexdigest())
"""
    root = make(tmp_path, sources, tuple(names))
    with open_project(root) as opened:
        asked = {"inputs.secrets": dict.fromkeys(names, "fd")}
        result = opened.exec("python", stdin=look, cwd=root, set=asked)  # a shell counts to 9
    values = (f"the value of {name}" for name in names)
    assert said(result).split() == [hashlib.sha256(value.encode()).hexdigest() for value in values]


@pytest.mark.sandbox
@pytest.mark.req("004-55", "004-56")
def test_the_next_execution_has_it_only_if_it_asks_again(runtime: Runtime) -> None:
    look = f"env | grep -c {NAME}; ls /proc/self/fd | wc -l"
    without = said(ask(runtime, look, None))
    assert said(ask(runtime, look, "env")).split()[0] == "1"  # positive control
    assert said(ask(runtime, look, None)) == without
    assert without.split()[0] == "0"


@pytest.mark.sandbox
def test_no_file_that_the_tool_can_see_and_no_argument_holds_it(runtime: Runtime) -> None:
    search = (
        "cat /proc/*/cmdline 2>/dev/null | grep -ac hors[e];"
        "grep -rlaI hors[e] /tmp /run /etc /dev/shm /artifacts 2>/dev/null | wc -l"
    )
    assert said(ask(runtime, search)).split() == ["0", "0"]
    planted = f"printf %s horse > /tmp/planted; {search}"
    assert said(ask(runtime, planted)).split() == ["0", "1"]  # the search finds


@pytest.mark.req("004-56")
def test_what_the_tool_is_not_approved_for_is_refused(tmp_path: Path) -> None:
    root = make(tmp_path, {NAME: '{ env = "OPERATORS_TOKEN" }'}, allowed=("ANOTHER",))
    with open_project(root) as runtime:
        result = ask(runtime, "true")
        assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("SECRET_NOT_ALLOWED",))
        assert result.violations[0].field == f"inputs.secrets.{NAME}"


@pytest.mark.req("004-56")
def test_to_name_it_in_tool_yaml_is_no_approval(runtime: Runtime) -> None:
    file = runtime.settings.root / "tools/shell/tool.yaml"
    file.write_text(file.read_text().replace(NAME, f"{NAME}\n    - MORE"))
    assert ask(runtime, "true").reason_codes == ("TOOL_CHANGED",)


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "PATH", "NOT_LISTED"])
def test_a_variable_that_makes_programs_do_more_carries_none(
    runtime: Runtime, variable: str
) -> None:
    assert ask(runtime, "true", f"env:{variable}").reason_codes == ("SECRET_NOT_ALLOWED",)


def test_a_variable_is_not_given_twice(runtime: Runtime) -> None:
    more = {"inputs.environment": {"LC_ALL": "C"}}
    assert ask(runtime, "true", "env:LC_ALL", **more).reason_codes == ("SECRET_NOT_ALLOWED",)


def test_a_missing_one_is_refused_before_anything_starts(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPERATORS_TOKEN")
    result = ask(runtime, "true")
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("SECRET_MISSING",))
    assert "OPERATORS_TOKEN is not set" in result.violations[0].message
    assert result.result is None
    root = str(runtime.settings.root)
    inputs = {
        "command": "sh",
        "secrets": {NAME: "env"},
        "working_directory": root,
        "stdin": "true",
    }
    forecast = runtime.check({"tool_id": "TL-010", "inputs": inputs})
    assert [violation.code for violation in forecast.violations] == ["SECRET_MISSING"]


def test_one_without_a_source_is_refused_with_the_line_to_add(tmp_path: Path) -> None:
    root = make(tmp_path, {})
    with open_project(root) as runtime:
        (violation,) = ask(runtime, "true").violations
        assert violation.code == "SECRET_MISSING"
        assert f"add {NAME} =" in violation.message


def test_no_value_is_in_the_plan_or_what_is_digested(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeRunner(captured(b""))
    with Runtime(runtime.settings, runners={RunnerKind.LOCAL: runner}) as faked:
        for value in (VALUE, VALUE[::-1]):
            monkeypatch.setenv("OPERATORS_TOKEN", value)
            ask(faked, "true").check()
    first, second = runner.plans
    assert first.call_sha256 == second.call_sha256
    assert [use.name for use in first.secrets] == [NAME]
    assert VALUE not in repr(first)


@pytest.mark.sandbox
def test_a_tool_with_a_secret_leaves_no_core(runtime: Runtime) -> None:
    assert said(ask(runtime, "ulimit -c; ulimit -Hc")).split() == ["0", "0"]  # in blocks of 512
    soft = next(
        line.split()[4]
        for line in Path("/proc/self/limits").read_text().splitlines()
        if line.startswith("Max core file size")
    )
    assert soft in ("0", "1")  # of the process that held the value, too
