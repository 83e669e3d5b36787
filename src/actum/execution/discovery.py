"""Disclosure of callable adapters, level by level, with the checks of an execution.

An adapter that the pipeline would refuse for its tool, itself or its runner is neither listed nor
found. Listing answers from the disk cache (at most an hour old) for the folders that are pinned
now; a search checks each adapter that it found as an execution would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from actum.contract.model import Json, RunnerKind
from actum.errors import ContractInvalid, Refused
from actum.execution.services import Services
from actum.registry.disclosure import KEYS, disclose, tokens
from actum.registry.disk_cache import Card
from actum.registry.model import Adapter, Tool
from actum.value import value


@value(kw_only=False)
class Discovery:
    """The adapters of a project, for a caller that chooses one."""

    services: Services

    def adapters(self) -> list[dict[str, Any]]:
        """Every adapter that may be called, at level 0, in the order of tools and adapters."""
        return [card.described for card, _ in self._cards()]

    def search(self, words: Iterable[str]) -> list[dict[str, Any]]:
        """Those that mention every word at level 0 or 1, at level 1; the best match first."""
        wanted = [word.lower() for word in words]
        found = []
        for card, summary in self._cards(summaries=True):
            shown = {**card.described, "summary": summary}
            texts = [text.lower() for text in _texts(shown)]
            named = [text.lower() for text in card.described.values()]
            if all(any(word in text for text in texts) for word in wanted):
                hits = sum(word in text for word in wanted for text in named)
                found.append((-hits, card.adapter_id, shown, card))
        found.sort(key=lambda each: each[:2])
        return [
            shown
            for _, _, shown, card in found
            if self.refusal(card.tool_id, card.adapter_id) is None
        ]

    def show(self, adapter_id: str, level: int) -> dict[str, Any]:
        """One adapter at a level, callable or not: `refusal` says which."""
        tool, adapter = self._find(adapter_id)
        return disclose(adapter, tool, level)

    def tokens(self, adapter_id: str) -> tuple[int, ...]:
        """About how many tokens each level of an adapter costs a model that reads it."""
        tool, adapter = self._find(adapter_id)
        return tuple(tokens(disclose(adapter, tool, level)) for level in range(len(KEYS)))

    def refusal(self, tool_id: str, adapter_id: str) -> Refused | ContractInvalid | None:
        """Why this adapter may not be called; the same answer as an execution gets."""
        try:
            entry = self.services.registry.entry(tool_id, adapter_id)
            self.services.runner(entry.tool.permissions.runner)
        except (Refused, ContractInvalid) as refused:
            return refused
        return None

    def everything(self) -> list[dict[str, Any]]:
        """Level 0 of every well-formed adapter, approved or not, for the approver."""
        registry = self.services.registry
        return [
            disclose(adapter, tool, 0)
            for tool in registry.tools()
            for adapter in registry.adapters(tool)
        ]

    def refresh(self) -> int:
        """Clear the caches and read the tools again; how many adapters may be called."""
        self.services.registry.forget()
        return len(self.adapters())

    def _cards(self, *, summaries: bool = False) -> Iterator[tuple[Card, Json]]:
        registry = self.services.registry
        for tool in registry.listed():
            if RunnerKind(tool.runner) not in self.services.runners:
                continue
            found = registry.summaries(tool) if summaries else {}
            for card in tool.adapters:
                yield card, found.get(card.adapter_id)

    def _find(self, adapter_id: str) -> tuple[Tool, Adapter]:
        registry = self.services.registry
        for tool in registry.tools():
            for adapter in registry.adapters(tool):
                if adapter.adapter_id == adapter_id:
                    return tool, adapter
        _, problems = registry.survey()
        if not problems:
            raise Refused(
                "ADAPTER_UNKNOWN",
                f"There is no adapter {adapter_id}.",
                remedy="`actum adapters list` shows what may be called, `--all` everything.",
            )
        raise Refused(
            "ADAPTER_UNKNOWN",
            f"No valid tool has an adapter {adapter_id}. Invalid: {problems[0]}",
            remedy="`actum tools list` shows every tool that is invalid, and why.",
        )


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    else:
        yield str(value)
