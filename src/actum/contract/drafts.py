"""Documents that were parsed lately: one that is the same again is not parsed again.

The same means the same bytes as Python itself writes plain data, types and all; what it cannot
write is parsed. Parsing looks at nothing but the document, so its answer cannot become stale. Only
what was sound is kept, and nothing with lists or mappings among its parameters: two contracts
would have them in common.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any

from actum.contract.complete import Sections, sections
from actum.contract.parse import parse_contract

_MOST = 256
_MOST_BYTES = 16_384


class Drafts:
    """The latest documents of one project. Shared by threads."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Sections] = {}

    def sections(self, document: Mapping[str, Any]) -> Sections:
        """As `parse_contract` finds them; raises `ContractInvalid` as it does."""
        try:
            key = marshal.dumps(document, 2)  # type: ignore[arg-type]
        except ValueError:
            return sections(parse_contract(document))
        found = self._kept.get(key)
        if found is None:
            found = sections(parse_contract(document))
            if len(key) <= _MOST_BYTES and is_shareable(found):
                if len(self._kept) >= _MOST:
                    self._kept.clear()
                self._kept[key] = found
        return found


def is_shareable(found: Sections) -> bool:
    """Whether two contracts that were made of it would have nothing in common that can change."""
    return not any(isinstance(each, (dict, list)) for each in found.parameters.values())
