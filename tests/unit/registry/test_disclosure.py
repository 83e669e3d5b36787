"""Disclosure levels: each adds its own keys, none holds a key of the next."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actum.registry.disclosure import KEYS, disclose
from actum.registry.load import load_adapters, load_tool

ADAPTERS = {
    "ripgrep": None,
    "rest": ("TL-100", "ADP-002.yaml"),
    "files": ("TL-200", "ADP-003.yaml"),
}


@pytest.fixture(params=list(ADAPTERS))
def folder(request: pytest.FixtureRequest, repository: Any, add_tool: Callable[..., None]) -> Path:
    made = ADAPTERS[request.param]
    if made is not None:
        add_tool(request.param, *made)
    found: Path = repository.folder(request.param)
    return found


def told(folder: Path, level: int) -> dict[str, Any]:
    (adapter,) = load_adapters(folder)
    return disclose(adapter, load_tool(folder), level)


@pytest.mark.req("000-153")
def test_level_0_is_exactly_four_keys(folder: Path) -> None:
    (adapter,) = load_adapters(folder)
    assert told(folder, 0) == {
        "adapter_id": adapter.adapter_id,
        "name": adapter.name,
        "tool_id": adapter.tool_id,
        "type": adapter.kind.value,
    }


@pytest.mark.req("000-153", "000-154", "000-155", "000-156")
def test_each_level_is_the_one_before_and_its_own_keys_and_none_of_the_next(folder: Path) -> None:
    before: dict[str, Any] = {}
    for level, keys in enumerate(KEYS):
        now = told(folder, level)
        assert set(now) == set(before) | set(keys)
        assert {key: now[key] for key in before} == before
        before = now


@pytest.mark.req("000-154")
def test_level_1_summarises_the_interface_without_its_templates(repository: Any) -> None:
    summary = told(repository.folder("ripgrep"), 1)["summary"]
    assert summary["executable"] == "rg"
    assert summary["parameters"] == ["pattern", "path", "ignore_case", "max_count"]
    assert "-m {value}" not in str(told(repository.folder("ripgrep"), 1))


@pytest.mark.req("000-155")
def test_level_2_holds_the_full_interface_and_the_transforms(repository: Any) -> None:
    level = told(repository.folder("ripgrep"), 2)
    (adapter,) = load_adapters(repository.folder("ripgrep"))
    assert level["interface"] == {"cli": adapter.interface}
    assert level["transforms"] == {
        "input": [],
        "output": [{"type": "parse", "spec": "json_lines"}],
    }


@pytest.mark.req("000-156")
def test_level_3_holds_the_whole_document_examples_and_fixtures(repository: Any) -> None:
    level = told(repository.folder("ripgrep"), 3)
    assert level["schema"]["errors"]["retry"]["max_attempts"] == 1
    assert level["schema"]["metadata"]["author"] == "Runtime Agent"
    assert level["args_schema"]["required"] == ["pattern", "path"]
    assert [example["adapter_id"] for example in level["examples"]] == ["ADP-001", "ADP-001"]
    assert level["fixtures"]["poem.txt"].startswith("the rain")


def test_no_level_below_3_reads_a_file(repository: Any) -> None:
    folder = repository.folder("ripgrep")
    (adapter,) = load_adapters(folder)
    tool = load_tool(folder)
    os.rename(folder, folder.with_name("elsewhere"))
    for level in (0, 1, 2):
        assert disclose(adapter, tool, level)["adapter_id"] == "ADP-001"


@pytest.mark.parametrize("level", [-1, 4])
def test_there_are_four_levels(repository: Any, level: int) -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        told(repository.folder("ripgrep"), level)
