"""What an execution reads of its adapters: level by level, and never what is for documentation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum.registry import disclosure, load, registry
from common.made_tools import MadeTools, cli_adapter, made_tools

pytestmark = pytest.mark.sandbox


class Spy:
    """The documents that were parsed, and the levels that were computed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.parsed: list[str] = []
        self.level_1: list[str] = []
        self.level_3: list[str] = []
        for module in (load, disclosure):
            self._watch_parsing(patch, module)
        summary, documentation = registry.summary, disclosure._documentation

        def summarised(adapter: Any, tool: Any) -> Any:
            self.level_1.append(adapter.adapter_id)
            return summary(adapter, tool)

        def documented(adapter: Any, tool: Any) -> Any:
            self.level_3.append(adapter.adapter_id)
            return documentation(adapter, tool)

        patch.setattr(registry, "summary", summarised)
        patch.setattr(disclosure, "_documentation", documented)

    def _watch_parsing(self, patch: pytest.MonkeyPatch, module: Any) -> None:
        real = module.load_document

        def parse(content: Any, *, file: str = "") -> Any:
            self.parsed.append(Path(file).name)
            return real(content, file=file)

        patch.setattr(module, "load_document", parse)

    def clear(self) -> None:
        for seen in (self.parsed, self.level_1, self.level_3):
            seen.clear()


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


@pytest.fixture
def made(spy: Spy) -> Iterator[MadeTools]:
    with made_tools() as opened:
        for name, count in (("one", 1), ("two", 2)):
            adapters = [
                cli_adapter(f"ADP-{name}-{n}", executable)
                for n, executable in zip(range(count), ("sh", "bash"), strict=False)
            ]
            folder = opened.add(name, adapters, approved=False)
            (folder / "fixtures").mkdir()
            (folder / "fixtures/examples.yaml").write_text(
                f"- name: none\n  adapter_id: ADP-{name}-0\n"
            )
            (folder / "README.md").write_text("For people.\n")
            opened.approve(name)
        opened.rt.services.registry.forget()  # as a new process finds it: nothing is cached
        spy.clear()
        yield opened


@pytest.mark.req("000-158")
def test_level_1_is_computed_only_if_several_adapters_match(made: MadeTools, spy: Spy) -> None:
    made.rt.exec("one", stdin="true").check()
    assert spy.level_1 == []
    made.rt.exec("two", stdin="true", adapter_id="ADP-two-1", set={"inputs.command": "bash"})
    assert spy.level_1 == []  # named: there is nothing to choose
    chosen = made.rt.exec("two", stdin="true", set={"inputs.command": "bash"}).check()
    assert (chosen.adapter_id, spy.level_1) == ("ADP-two-1", ["ADP-two-0", "ADP-two-1"])
    spy.clear()
    made.rt.exec("two", stdin="echo again", set={"inputs.command": "bash"}).check()
    assert spy.level_1 == []  # cached


@pytest.mark.req("000-160", "000-161")
@pytest.mark.parametrize("tool", ["one", "two"])
def test_an_execution_parses_tool_and_adapters_and_no_documentation(
    made: MadeTools, spy: Spy, tool: str
) -> None:
    words: dict[str, Any] = {"stdin": "true", "set": {"inputs.command": "sh"}}
    made.rt.exec(tool, **words).check()
    folder = made.root / "tools" / tool
    adapters = {path.name for path in (folder / "adapters").iterdir()}
    assert set(spy.parsed) == {"tool.yaml", *adapters}
    assert spy.level_3 == []
    spy.clear()
    made.rt.exec(tool, **words).check()
    assert (spy.parsed, spy.level_3) == ([], [])  # warm: nothing at all
    # The control: level 3 is what parses the examples.
    made.rt.discovery.show(f"ADP-{tool}-0", 3)
    assert spy.level_3 == [f"ADP-{tool}-0"]
    assert "examples.yaml" in spy.parsed
