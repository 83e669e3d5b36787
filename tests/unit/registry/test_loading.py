"""How an adapter is found: level by level, from what was kept, and never further than needed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from actum.errors import Refused
from actum.registry import disk_cache, load
from actum.registry.disk_cache import METADATA_S, SCHEMA_S, DiskCache
from actum.registry.registry import Registry
from actum.registry.selection import Task


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_registry(pinned: Any, clock: Clock) -> Any:
    """A registry as each new process has it; what was kept is shared through the folder."""

    def opened() -> Registry:
        kept = DiskCache(pinned.root / ".actum" / "cache", clock)
        return Registry(pinned.root, pinned.keyring.trusted, kept=kept)

    return opened


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The documents that were really parsed, by file name."""
    seen: list[str] = []
    real = load.load_document

    def spy(content: bytes, *, file: str = "") -> Any:
        seen.append(Path(file).name)
        return real(content, file=file)

    monkeypatch.setattr(load, "load_document", spy)
    return seen


def second_adapter(repository: Any, executable: str = "rga") -> None:
    folder = repository.folder("ripgrep") / "adapters"
    text = (folder / "ripgrep-search.yaml").read_text().replace("ADP-001", "ADP-101")
    assert "executable: rg\n" in text
    (folder / "second.yaml").write_text(
        text.replace("executable: rg\n", f"executable: {executable}\n")
    )
    repository.approve("TL-003")


@pytest.mark.req("000-157")
def test_a_warm_request_loads_level_0_from_what_was_kept_and_reads_no_document(
    open_registry: Any, parsed: list[str]
) -> None:
    open_registry().entry("ripgrep", None)
    assert "ripgrep-search.yaml" in parsed  # cold: it had to be read
    parsed.clear()
    another_process = open_registry()
    assert another_process.entry("ripgrep", None).adapter.adapter_id == "ADP-001"
    assert [card.tool_id for card in another_process.listed()] == ["TL-003"]
    assert parsed == []


def test_what_a_command_line_needs_to_know_is_recalled_and_only_for_what_is_pinned(
    open_registry: Any, pinned: Any, edit: Any, parsed: list[str]
) -> None:
    assert open_registry().recall("ripgrep") is None  # nothing was kept yet
    open_registry().entry("ripgrep", None)
    parsed.clear()
    registry = open_registry()
    recalled = registry.recall("ripgrep")
    assert recalled is not None
    assert (recalled.tool_id, recalled.executable) == ("TL-003", "rg")
    schema = registry.recall_schema("TL-003")
    assert schema is not None and schema["required"] == ["pattern", "path"]
    assert parsed == []
    edit("ripgrep/tool.yaml", "name: ripgrep", "name: ripgrep # changed")
    pinned.approve("TL-003")
    assert open_registry().recall("ripgrep") is None
    assert open_registry().recall_schema("ripgrep") is None
    assert open_registry().recall("nothing") is None


@pytest.mark.req("000-157")
def test_listing_discloses_level_0_and_loads_no_other(open_registry: Any) -> None:
    registry = open_registry()
    (tool,) = registry.listed()
    assert [card.described for card in tool.adapters] == [
        {
            "adapter_id": "ADP-001",
            "name": "ripgrep-search",
            "tool_id": "TL-003",
            "type": "cli",
        }
    ]
    assert set(registry.loaded) == {0}


@pytest.mark.req("000-160")
def test_level_1_is_loaded_only_if_several_match_level_2_always_and_level_3_never(
    open_registry: Any, pinned: Any
) -> None:
    one = open_registry()
    one.entry("ripgrep", None)
    assert one.loaded == {0: 1, 2: 1}

    second_adapter(pinned)
    several = open_registry()
    several.entry("ripgrep", None, task=Task(operation="rga"))
    assert several.loaded == {0: 1, 1: 1, 2: 1}

    by_name = open_registry()
    by_name.entry("ripgrep", "ADP-101")
    assert by_name.loaded == {0: 1, 2: 1}


@pytest.mark.req("000-160")
def test_level_2_of_the_chosen_adapter_alone_is_loaded(
    open_registry: Any, pinned: Any, parsed: list[str]
) -> None:
    second_adapter(pinned)
    registry = open_registry()
    for card in registry.listed():
        registry.summaries(card)  # levels 0 and 1 are warm, no level 2 is
    parsed.clear()
    entry = open_registry().entry("ripgrep", None, task=Task(operation="rga"))
    assert entry.adapter.cli is not None and entry.adapter.cli.executable == "rga"
    assert parsed == ["tool.yaml", "second.yaml"]


def test_of_several_the_one_that_knows_the_parameters_is_chosen(
    open_registry: Any, pinned: Any
) -> None:
    folder = pinned.folder("ripgrep") / "adapters"
    text = (folder / "ripgrep-search.yaml").read_text().replace("ADP-001", "ADP-101")
    line = "      max_count: "
    assert text.count(line) == 1
    (folder / "second.yaml").write_text(text.replace(line, '      context: "-C {value}"\n' + line))
    pinned.approve("TL-003")
    for _ in range(2):
        task = Task(operation="rg", parameters=("pattern", "context"))
        chosen = open_registry().entry("ripgrep", None, task=task)
        assert chosen.adapter.adapter_id == "ADP-101"
    with pytest.raises(Refused) as refused:
        open_registry().entry("ripgrep", None, task=Task(operation="rg", parameters=("pattern",)))
    assert refused.value.code == "ADAPTER_AMBIGUOUS"


@pytest.mark.req("000-168")
def test_an_adapter_schema_is_kept_for_24_hours_for_every_process(
    open_registry: Any, clock: Clock, parsed: list[str]
) -> None:
    open_registry().entry("ripgrep", None)
    parsed.clear()
    clock.now += SCHEMA_S - 1
    open_registry().entry("ripgrep", None)
    # Once each, for level 0, which is older than its hour; not once more for level 2.
    assert sorted(parsed) == ["ripgrep-search.yaml", "tool.yaml"]
    parsed.clear()
    clock.now += 1
    open_registry().entry("ripgrep", None)
    assert parsed == ["tool.yaml", "ripgrep-search.yaml"]
    assert SCHEMA_S == 24 * 3600


@pytest.mark.req("000-168")
def test_another_version_invalidates_the_schema_at_once(
    open_registry: Any, pinned: Any, edit: Any, parsed: list[str]
) -> None:
    assert open_registry().entry("ripgrep", None).adapter.version == "1.0.0"
    edit("ripgrep/adapters/ripgrep-search.yaml", 'version: "1.0.0"', 'version: "9.9.9"')
    pinned.approve("TL-003")
    parsed.clear()
    assert open_registry().entry("ripgrep", None).adapter.version == "9.9.9"
    assert "ripgrep-search.yaml" in parsed


@pytest.mark.req("000-168")
def test_a_kept_document_is_not_used_for_another_version(tmp_path: Path, clock: Clock) -> None:
    kept = DiskCache(tmp_path, clock)
    kept.keep_document("ab", {"version": "1.0.0"})
    assert kept.document("ab", "1.0.0") == {"version": "1.0.0"}
    assert kept.document("ab", "1.0.1") is None
    assert DiskCache(tmp_path, clock).document("ab", "1.0.0") == {"version": "1.0.0"}


@pytest.mark.req("000-169")
def test_tool_metadata_is_kept_for_an_hour_or_until_it_is_refreshed(
    open_registry: Any, pinned: Any, clock: Clock
) -> None:
    digest = pinned.registry().lock().pins[0].digest
    registry = open_registry()
    list(registry.listed())

    def warm() -> bool:
        return open_registry().kept.card("TL-003", digest) is not None

    clock.now += METADATA_S - 1
    assert warm()
    clock.now += 1
    assert not warm()
    list(open_registry().listed())
    assert warm()
    open_registry().forget()  # by one process, for all of them
    assert not warm()
    assert registry.kept.card("TL-003", digest) is None
    assert METADATA_S == 3600


@pytest.mark.req("000-169")
def test_metadata_of_a_folder_that_is_not_the_pinned_one_is_not_used(
    open_registry: Any, pinned: Any, edit: Any
) -> None:
    list(open_registry().listed())
    edit("ripgrep/adapters/ripgrep-search.yaml", "name: ripgrep-search", "name: renamed")
    pinned.approve("TL-003")
    (tool,) = open_registry().listed()
    assert tool.adapters[0].name == "renamed"


def test_a_clock_that_was_set_back_keeps_nothing_for_ever(tmp_path: Path, clock: Clock) -> None:
    kept = DiskCache(tmp_path, clock)
    kept.keep_document("ab", {"version": "1"})
    clock.now -= 1
    assert kept.document("ab", "1") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"shape": 99, "values": {}}'])
def test_what_cannot_be_read_is_read_from_the_tools_again(
    open_registry: Any, pinned: Any, content: bytes
) -> None:
    open_registry().entry("ripgrep", None)
    for file in (pinned.root / ".actum" / "cache").rglob("*.json"):
        file.write_bytes(content)
    assert open_registry().entry("ripgrep", None).adapter.adapter_id == "ADP-001"


def test_documents_that_other_code_found_well_formed_are_not_used(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Path(disk_cache.__file__).parent
    assert disk_cache.shape_of(installed) == disk_cache._SHAPE
    other = tmp_path / "other"
    shutil.copytree(installed, other)
    (other / "transforms.py").write_text("# other checks\n")
    DiskCache(tmp_path, clock).keep_document("ab", {"version": "1"})
    assert DiskCache(tmp_path, clock).document("ab", "1") is not None
    monkeypatch.setattr(disk_cache, "_SHAPE", disk_cache.shape_of(other))
    assert DiskCache(tmp_path, clock).document("ab", "1") is None


def test_what_is_kept_is_readable_by_its_owner_only(open_registry: Any, pinned: Any) -> None:
    registry = open_registry()
    registry.entry("ripgrep", None)
    for card in registry.listed():
        registry.summaries(card)
    cache = pinned.root / ".actum" / "cache"
    files = list(cache.rglob("*.json"))
    assert len(files) == 4  # two of metadata, tool.yaml and one adapter
    assert {os.stat(file).st_mode & 0o077 for file in files} == {0}


def test_a_tool_that_is_blocked_is_listed_no_more_however_warm(
    open_registry: Any, pinned: Any
) -> None:
    from actum.registry.approval_workflow import block

    assert len(list(open_registry().listed())) == 1
    block(pinned.root, pinned.keyring, "TL-003", by="user:ada", evidence="X", date="2026-11-15")
    assert list(open_registry().listed()) == []
