"""The difference between two configurations, field by field."""

from __future__ import annotations

from collections.abc import Sequence

from actum.contract.canonical import canonical
from actum.contract.model import Json
from actum.runs.contract.fields import FIELDS, Config
from actum.value import value


@value
class Difference:
    field: str
    persisted: Json
    requested: Json

    def __str__(self) -> str:
        return f"{self.field}: {_word(self.persisted)} -> {_word(self.requested)}"

    def document(self) -> dict[str, Json]:
        return {"field": self.field, "persisted": self.persisted, "requested": self.requested}


def differences(persisted: Config, requested: Config) -> tuple[Difference, ...]:
    """Every field that differs, in the order of the fields."""
    return tuple(
        Difference(
            field=field.name, persisted=persisted[field.name], requested=requested[field.name]
        )
        for field in FIELDS
        # By canonical bytes: in Python, 1 == True.
        if canonical(persisted[field.name]) != canonical(requested[field.name])
    )


def shown(found: Sequence[Difference]) -> str:
    return ", ".join(map(str, found))


def _word(found: Json) -> str:
    return str(found).lower() if isinstance(found, bool) else str(found)
