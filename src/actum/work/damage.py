"""Damage: differences from a recorded state that no recorded run made.

Recovery finds it. It knows the state that a run froze, but did not observe what happened since, so
it signs the damage as a difference, and never as the state before. `actum item accept` records that
a person has reviewed the project and accepts it as it is.

Edits of files that govern the project (`agents/`, `tools/`, `actum.toml` and so on) are no damage:
people make them between a crash and the next command, and no item may change these files, so none
of its work can be lost there. If such a file is missing, that is damage.
"""

from __future__ import annotations

from typing import Self

from actum.contract.governing_names import GOVERNING
from actum.contract.model import Json
from actum.evidence.verify.work_findings import damage_text
from actum.value import value
from actum.workspace.tree import Action, Change, Delta, shown

_MOST_PATHS = 1_000  #: named in a receipt; all are counted


@value
class Damage:
    """Recorded paths that are missing or changed, and paths that were added."""

    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    listed: bool = True  #: false: only the hash is known, and it differs

    @classmethod
    def of(cls, delta: Delta) -> Self:
        def paths(action: Action) -> tuple[str, ...]:
            return tuple(shown(change.path) or "." for change in delta if change.action is action)

        return cls(
            missing=paths(Action.DELETED),
            changed=paths(Action.MODIFIED),
            added=paths(Action.CREATED),
        )

    @classmethod
    def without_edits(cls, delta: Delta) -> Self:
        """As `of`, without edits of what governs the project."""
        return cls.of(tuple(change for change in delta if not _is_edit(change)))

    @property
    def counts(self) -> bool:
        """Whether a recorded path is missing or changed. Added paths do not count."""
        return not self.listed or bool(self.missing or self.changed)

    def document(self) -> dict[str, Json]:
        return {
            "listed": self.listed,
            "missing": len(self.missing),
            "changed": len(self.changed),
            "added": len(self.added),
            "missing_paths": list(self.missing[:_MOST_PATHS]),
            "changed_paths": list(self.changed[:_MOST_PATHS]),
        }

    def __str__(self) -> str:
        return damage_text(self.document())


def _is_edit(change: Change) -> bool:
    top = shown(change.path).partition("/")[0]
    return top in GOVERNING and change.action is Action.MODIFIED
