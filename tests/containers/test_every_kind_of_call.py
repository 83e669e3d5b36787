"""Snippets, sessions, functions of packages and MCP servers in containers, as on the local runner.

Each test runs with containers made when they are asked for, and with containers that wait.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Outcome, Runtime
from actum.contract.model import RunnerKind
from actum.evidence.owner import current_owner
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.runners.container.container_config import OWNER_LABEL
from actum.store.keys import Keyring
from common.settings import add_settings
from engines import Engine

pytestmark = pytest.mark.sandbox
_EXAMPLES = Path(__file__).parents[2] / "examples"
_LANGUAGES = ("python", "node", "go", "rust")
_TOOLS = ("mcp/notes", *(f"sdk/stats-{language}" for language in _LANGUAGES))


@pytest.fixture(scope="module", params=[False, True], ids=["made when asked", "waiting"])
def rt(
    engine: Engine, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runtime]:
    root = tmp_path_factory.mktemp("kinds") / "project"
    create(root, RunnerKind.DOCKER, by="user:tests", date="2026-01-01")
    add_settings(root, f'\n[docker]\nhost = "unix://{engine.socket}"\n')
    for example in _TOOLS:
        target = root / "tools" / Path(example).name
        shutil.copytree(_EXAMPLES / example, target)
        text = (target / "tool.yaml").read_text()
        assert "runner: local" in text
        (target / "tool.yaml").write_text(text.replace("runner: local", "runner: docker"))
        keyring = Keyring.open(root / ".actum")
        approve(root, keyring, target.name, by="user:b", evidence="e", date="2026-01-01")
    with Runtime.open(root, pool=request.param) as runtime:
        yield runtime
    engine.require_none(f"{OWNER_LABEL}={current_owner()}")


def test_snippets_with_values(rt: Runtime) -> None:
    for number in range(4):
        result = rt.python("import os; [x * 2, os.getpid()]", params={"x": number})
        assert result.check().output[0] == 2 * number
        assert result.runner_type == "docker"
    failed = rt.python("raise ValueError('no')")
    assert failed.outcome is Outcome.TOOL_ERROR


def test_a_session_keeps_its_names(rt: Runtime) -> None:
    with rt.python_session() as session:
        session.run("y = 20").check()
        assert session.run("y + 1").check().output == 21


@pytest.mark.parametrize("language", _LANGUAGES)
def test_a_function_of_a_package(rt: Runtime, language: str) -> None:
    for text in ("drei größe Worte", "zwei Worte"):
        result = rt.exec(f"stats-{language}:words", parameters={"text": text}).check()
        assert result.output == {"words": len(text.split()), "characters": len(text)}
        assert result.runner_type == "docker"
    failed = rt.exec(f"stats-{language}:longest", parameters={"text": " "})
    assert failed.outcome is Outcome.TOOL_ERROR


def test_an_mcp_server_is_kept_between_calls(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rt.settings.root)
    rt.exec("notes:remember", parameters={"title": "milk", "text": "two bottles"}).check()
    recalled = rt.exec("notes:recall", parameters={"title": "milk"}).check()
    assert recalled.output == "two bottles"
    assert recalled.runner_type == "docker"
    assert [each for each in rt.verifier.verify_all() if not each.passed] == []
