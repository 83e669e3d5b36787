"""The shipped tools pip, npm and fetch: real programs, against an index that the test starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result, Runtime
from actum.contract.model import RunnerKind
from actum.evidence.records.audit import Decision
from actum.project import create
from actum.settings import load
from common.certificates import authority
from common.package_index import PackageIndex, package_index
from common.settings import add_settings

pytestmark = pytest.mark.sandbox
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
needs_pip = pytest.mark.skipif(
    subprocess.run(
        ["/usr/bin/python3", "-I", "-m", "pip", "--version"], capture_output=True
    ).returncode
    != 0,
    reason="the system's Python has no pip",
)


@dataclass
class World:
    root: Path
    index: PackageIndex
    runtime: Runtime
    environment: dict[str, str]

    def run(self, tool: str, *words: str, **given: Any) -> Result:
        """Run; what needs a decision gets it first."""
        given = {"cwd": self.root, **given}
        result = self.runtime.exec(tool, *words, **given)
        if "APPROVAL_REQUIRED" in result.reason_codes:
            for violation in result.violations:
                self.runtime.approvals.decide(
                    violation.value, Decision.ALLOW, by="user:boss", why="it is a test"
                )
            result = self.runtime.exec(tool, *words, **given)
        return result

    def actum(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "actum.doors.cli.main", *words],
            capture_output=True,
            text=True,
            cwd=self.root,
            env=self.environment,
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A project on a host whose pip and npm are set up for `packages.test`."""
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-18")
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    ca_file, context = authority(tmp_path, ["packages.test", "other.test"])
    with package_index(context) as index:
        names = ("packages.test:443", "other.test:443")
        places = "".join(f'"{name}" = "{index.place}"\n' for name in names)
        add_settings(root, f'[egress]\nca_file = "{ca_file}"\n[egress.resolve]\n{places}')
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LOGNAME": "test",
            "PIP_INDEX_URL": "https://packages.test/simple/",
            "npm_config_registry": "https://packages.test/npm/",
        }
        with Runtime(load(root / ".actum", environment)) as runtime:
            yield World(root, index, runtime, environment)


def printed(result: Result) -> str:
    assert result.result is not None, result.violations
    assert result.outcome is Outcome.SUCCEEDED, result.result
    return result.result.stdout


def hosts(result: Result) -> set[str]:
    return {one.host for one in result.egress if not one.refused}


@needs_pip
def test_pip_installs_into_a_folder_of_the_project(world: World) -> None:
    first = world.runtime.exec("pip", "install", "--target", "vendor", "greeting", cwd=world.root)
    assert first.reason_codes == ("APPROVAL_REQUIRED",), "an internal address needs an approval"
    result = world.run("pip", "install", "--target", "vendor", "greeting")
    assert "Successfully installed greeting-1.0" in printed(result)
    assert hosts(result) == {"packages.test"}
    assert result.network_refused == ()
    assert (world.root / "vendor/greeting.py").is_file()
    assert result.workspace is not None and result.workspace.state == "committed"
    program = (
        "import sys; sys.path.insert(0, 'vendor'); import greeting; print(greeting.greet('you'))"
    )
    assert printed(world.runtime.exec("python", stdin=program, cwd=world.root)) == "hello you\n"
    findings = world.runtime.verifier.verify_execution(result.receipt_id)
    assert all(finding.passed for finding in findings)


@needs_pip
def test_pip_installs_into_a_virtual_environment_of_the_project(world: World) -> None:
    made = world.runtime.exec("shell", stdin="python3 -m venv --without-pip .venv", cwd=world.root)
    printed(made)
    result = world.run("pip", "install", "greeting", parameters={"venv": ".venv"})
    assert "Successfully installed greeting-1.0" in printed(result)
    assert list(world.root.glob(".venv/lib/python3*/site-packages/greeting.py"))


@needs_pip
def test_pip_reaches_no_other_index_and_says_so(world: World) -> None:
    """Named by an option, or by a file that a tool could have written."""
    result = world.run(
        "pip", "install", "--target", "vendor", "--retries", "0",
        "--index-url", "https://other.test/simple/", "greeting",
    )  # fmt: skip
    assert result.outcome is Outcome.TOOL_ERROR
    assert {one.host for one in result.network_refused} == {"other.test"}
    (world.root / "pip.conf").write_text("[global]\nindex-url = https://other.test/simple/\n")
    (world.root / "requirements.txt").write_text(
        "--extra-index-url https://other.test/simple/\ngreeting\n"
    )
    result = world.run(
        "pip", "install", "--target", "vendor", "--retries", "0", "-r", "requirements.txt"
    )
    assert "other.test" in {one.host for one in result.network_refused}
    assert "other.test" not in {host for host, _ in world.index.seen}


@pytest.mark.parametrize(
    "words",
    [
        ("install", "greeting"),
        ("uninstall", "-y", "greeting"),
        ("config", "set", "global.index-url", "https://other.test/"),
        ("--python", "/usr/bin/python3", "install", "greeting"),
        ("cache", "purge"),
    ],
)
def test_pip_installs_nowhere_else_and_has_no_other_subcommand(
    world: World, words: tuple[str, ...]
) -> None:
    result = world.runtime.exec("pip", *words, cwd=world.root)
    assert result.outcome is Outcome.REJECTED
    assert result.result is None
    assert world.index.seen == []


@needs_npm
def test_npm_installs_into_the_project(world: World) -> None:
    result = world.run("npm", "install", "greeting")
    assert "added 1 package" in printed(result)
    assert hosts(result) == {"packages.test"}
    assert result.network_refused == ()
    program = "console.log(require('greeting')('you'))"
    assert printed(world.runtime.exec("node", stdin=program, cwd=world.root)) == "hello you\n"
    assert json.loads((world.root / "package.json").read_text())["dependencies"] == {
        "greeting": "^1.0.0"
    }


@needs_npm
def test_npm_reaches_no_registry_that_a_file_of_the_project_names(world: World) -> None:
    (world.root / ".npmrc").write_text(
        "@theirs:registry=https://other.test/npm/\nfetch-retries=0\n"
    )
    result = world.run("npm", "install", "@theirs/greeting")
    assert result.outcome is Outcome.TOOL_ERROR
    assert {one.host for one in result.network_refused} == {"other.test"}
    assert world.index.seen == []
    refused = world.runtime.exec("npm", "install", "-g", "greeting", cwd=world.root)
    assert refused.outcome is Outcome.REJECTED


def test_fetch_asks_for_the_host_of_its_url_and_reaches_no_other(world: World) -> None:
    url = "https://packages.test/data.json"
    asked = world.runtime.exec("fetch", parameters={"url": url}, cwd=world.root)
    assert asked.reason_codes == ("APPROVAL_REQUIRED",)
    assert [v.message for v in asked.violations if "packages.test:443" in v.message]
    result = world.run("fetch", parameters={"url": url})
    assert json.loads(printed(result)) == {"answer": 42}
    assert hosts(result) == {"packages.test"}
    printed(world.run("fetch", parameters={"url": url, "output": "data.json"}))
    assert json.loads((world.root / "data.json").read_text()) == {"answer": 42}
    assert json.loads(printed(world.run("fetch", url))) == {"answer": 42}
    missing = world.run("fetch", "https://packages.test/missing")
    assert missing.outcome is Outcome.TOOL_ERROR
    # A public host has an approval of its own: the pin names none.
    public = world.runtime.exec("fetch", "https://example.test/x", cwd=world.root)
    assert public.reason_codes == ("APPROVAL_REQUIRED",)
    assert any("example.test:443" in violation.message for violation in public.violations)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a.test/", "http://u:p@a.test/", "-K x"]
)
def test_fetch_takes_no_other_url(world: World, url: str) -> None:
    for given in ({"parameters": {"url": url}}, {}):
        words = () if given else (url,)
        result = world.runtime.exec("fetch", *words, cwd=world.root, **given)
        assert result.outcome is Outcome.REJECTED
        assert result.reason_codes == ("ARGS_INVALID",)


@needs_pip
def test_the_command_line_installs_after_the_approval(world: World) -> None:
    words = ("exec", "pip", "--", "install", "--target", "vendor", "greeting")
    waiting = json.loads(world.actum("--json", *words).stdout)
    assert waiting["reason_codes"] == ["APPROVAL_REQUIRED"]
    for violation in waiting["violations"]:
        decided = world.actum(
            "approvals", "approve", violation["value"], "--by", "user:boss", "--why", "a test"
        )
        assert decided.returncode == 0, decided.stderr
    done = world.actum(*words)
    assert done.returncode == 0, done.stderr
    assert "SUCCEEDED" in done.stderr
    assert (world.root / "vendor/greeting.py").is_file()
    shown = json.loads(world.actum("--json", "config", "show").stdout)
    assert "packages.test" in shown["network.registries"]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("pip", ("install", "--target", "../out", "greeting")),
        ("pip", ("install", "--target=../out", "greeting")),
        ("pip", ("install", "-t../out", "greeting")),
        ("pip", ("install", "-t", "vendor/../../out", "greeting")),
        ("pip", ("install", "--target", "vendor", "--prefix=/tmp/out", "greeting")),
        ("pip", ("install", "--target", "/tmp/out", "greeting")),
        ("pip", ("install", "-t", "/tmp/out", "greeting")),
        ("pip", ("install", "--target=/tmp/out", "greeting")),
        ("pip", ("install", "-t/tmp/out", "greeting")),
        ("npm", ("install", "-C=/tmp/out", "greeting")),
        ("npm", ("install", "-C/tmp/out", "greeting")),
    ],
)
def test_an_installation_that_would_be_gone_is_refused(
    world: World, tool: str, words: tuple[str, ...]
) -> None:
    refused = world.runtime.exec(tool, *words, cwd=world.root)
    assert refused.reason_codes == ("ARGS_INVALID",)


def test_options_that_look_alike_are_not_refused(world: World) -> None:
    words = ("install", "--target", "a..b", "--root-user-action=ignore", "--no-index", "greeting")
    assert world.runtime.exec("pip", *words, cwd=world.root).reason_codes != ("ARGS_INVALID",)
    words = ("install", "--target", "vendor", "--no-index", f"{world.root}/greeting.whl")
    assert world.runtime.exec("pip", *words, cwd=world.root).reason_codes != ("ARGS_INVALID",)
