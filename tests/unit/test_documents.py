"""What users can meet is written down: every code, every command, every setting."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import actum
from actum.contract.limits import RANGES
from actum.contract.model import RunnerKind
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.doors.cli.group import cli
from actum.executors.reasons import Reason
from actum.project import create
from actum.registry.load import schema_of
from actum.runners.supervise import _REFUSALS
from actum.settings_file import KEYS

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "actum").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_CODE = re.compile(r"[A-Z][A-Z0-9]*(?:[_-][A-Z0-9]+)+")


def codes_of(tree: ast.AST) -> Iterator[str]:
    """Reason codes: what is given as `code`, by keyword, by assignment, or first to a refusal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            given = [item.value for item in node.keywords if item.arg == "code"]
            if name in ("Refused", "Unloadable", "_blocked") and node.args:
                given.append(node.args[0])
        elif isinstance(node, ast.Assign):
            targets = [name for target in node.targets for name in _names(target)]
            given = [node.value] if "code" in targets else []
        else:
            given = []
        for value in given:
            yield from _texts(value)


def _names(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id


def _texts(value: ast.expr) -> Iterator[str]:
    """Every word in `value` that looks like a code: also of either branch of a condition."""
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and _CODE.fullmatch(str(node.value)):
            yield str(node.value)


def _values(words: type[StrEnum]) -> set[str]:
    return {word.value for word in words}


def test_every_error_code_is_documented() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    codes = {code for file in SOURCES for code in codes_of(ast.parse(file.read_text()))}
    assert {"TOOL_CHANGED", "DELEGATION_IN_USE", "EXECUTOR_ID_TAKEN", "IV-03"} <= codes
    codes |= _values(Outcome) | _values(Reason) | set(_REFUSALS)
    codes |= {each.reason for each in PROJECTIONS.values() if each.reason is not None}
    assert sorted(code for code in codes if f"`{code}`" not in text) == []


def test_no_code_is_documented_that_does_not_exist() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    listed = {
        code
        for line in text.splitlines()
        if line.startswith("| `")
        for code in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    sources = "\n".join(file.read_text() for file in SOURCES)
    assert len(listed) > 100
    assert sorted(code for code in listed if f'"{code}"' not in sources) == []


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    names = [f"{section}.{name}" for section, entries in KEYS.items() for name in entries]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_limit_is_documented_with_its_range() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for name, limit in RANGES.items():
        figures = rf"{limit.default} \| {limit.least} to {limit.most}\b"
        row = rf"\| `sandbox\.(processes\.)?{name}` \| {figures}"
        assert re.search(row, text), name


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda page: page.stem
)
def test_a_decision_has_its_number_a_title_and_a_status(page: Path) -> None:
    title, blank, status, *_ = page.read_text().splitlines()
    assert title.startswith(f"# {page.name[:4]}: ") and not blank
    assert re.match(r"Status: (accepted|superseded by \[\d{4}\])", status)


@pytest.mark.parametrize("side", ["input", "output"])
def test_every_type_of_transform_is_documented(side: str) -> None:
    transform = schema_of("adapter")["properties"]["transforms"]["properties"][side]["items"]
    types = transform["properties"]["type"]["enum"]
    text = (ROOT / "docs" / "adapters.md").read_text().partition("\n## Transforms\n")[2]
    table = text.partition(f"\n| {side} | spec | does |\n")[2].partition("\n\n")[0]
    assert [kind for kind in types if f"\n| `{kind}` |" not in table] == []


def test_every_setting_is_shown(tmp_path: Path) -> None:
    create(tmp_path, RunnerKind.LOCAL, by="user:test", date="2026-01-16")
    answer = CliRunner().invoke(cli, ["--home", str(tmp_path), "config", "show"])
    shown = {line.partition(":")[0] for line in answer.output.splitlines()}
    names = {f"{section}.{name}" for section, entries in KEYS.items() for name in entries}
    # The enabled runners are one line.
    assert {name for name in names if not name.startswith("runners.")} | {"runners"} <= shown


def _commands(group: click.Group, prefix: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    assert isinstance(cli, click.Group)
    names = list(_commands(cli, "actum"))
    assert len(names) > 30
    assert [name for name in names if not re.search(rf"`([^`|]*\| )?{name}[ `]", text)] == []


def test_every_field_of_a_document_is_described() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    missing = []
    for name in ("execution-contract", "tool", "adapter"):
        (file,) = (ROOT / "src" / "actum").rglob(f"schemas/{name}.json")
        properties = json.loads(file.read_text())["properties"]
        missing += [field for field in properties if not re.search(rf"`{field}[`.]", text)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_points_to_is_there(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    # Tests and sources by name, wherever they are mentioned as promises.
    named = re.findall(r"`((?:tests|src|docs|scripts|bench)/(?!decisions/NNNN)[\w./-]+)`", text)
    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [name for name in named if not (ROOT / name).exists()]
    assert missing == []


def test_what_can_be_imported_is_pinned() -> None:
    assert actum.__all__ == [
        "ActionRequest",
        "ActionResult",
        "ActumError",
        "ArtifactRef",
        "Cancel",
        "Contract",
        "ContractInvalid",
        "ExecRequest",
        "Fault",
        "NotSucceeded",
        "Outcome",
        "Problem",
        "Refused",
        "Result",
        "RunResult",
        "Runtime",
        "ToolRunResult",
        "TraceContext",
        "Violation",
        "WorkItem",
        "__version__",
    ]
    assert {*actum.__all__} <= {*dir(actum)}
    assert {name for name in dir(actum) if not name.startswith("_")} < {*actum.__all__}
    assert all(getattr(actum, name) for name in actum.__all__)
