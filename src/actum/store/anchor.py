"""The anchor: foreign keys that this home trusts, stored out of reach of tools and repositories.

`actum.toml [trust]` names keys, and a key that is trusted signs `tools.lock`, which approves
`actum.toml`. Without an anchor a change of both files would approve itself. A foreign key is
trusted once it is in the anchor. It gets there by a person's approval of the settings in this home,
or by an approval signed by a key that was trusted before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from actum.errors import Refused
from actum.store.whole_file import write_whole
from actum.value import value

FILE_NAME = "anchor.json"
_VERSION = 1
_KEYID = frozenset("0123456789abcdef")


@value
class Anchor:
    keys: frozenset[str]  #: ids of the foreign keys that are trusted here


def read_anchor(home: Path) -> Anchor | None:
    """``None``: no settings have ever been approved in this home."""
    file = home / FILE_NAME
    try:
        document = json.loads(file.read_bytes())
        keys = document["trusted_keys"]
        well_formed = document["version"] == _VERSION and all(
            len(keyid) == 64 and _KEYID.issuperset(keyid) for keyid in keys
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        well_formed = False
    if not well_formed:
        raise Refused(
            "ANCHOR_UNUSABLE",
            f"{file} cannot be read as the list of trusted keys.",
            remedy="Restore it from a copy, or remove it and approve the settings again:"
            " `actum config approve --by WHO`.",
        )
    return Anchor(keys=frozenset(keys))


def write_anchor(home: Path, keys: Iterable[str]) -> None:
    document = {"version": _VERSION, "trusted_keys": sorted(set(keys))}
    write_whole(home / FILE_NAME, (json.dumps(document) + "\n").encode(), synced=True)
