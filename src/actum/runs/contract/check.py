"""The check of a stored contract before any step: support first, then consistency, then the seal.

Recomputes everything that can be recomputed and compares canonical bytes. A missing key never
switches a check off: only a run that has none of the seven keys and was never sealed is a legacy
run, and a worker carries out none of those either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actum.contract.canonical import NotCanonical, canonical
from actum.contract.model import Json
from actum.errors import VerificationFailed
from actum.runs.contract.fields import BY_NAME, problems_in
from actum.runs.contract.material import (
    CONFIG,
    EFFECTIVE,
    FALLBACK_FIELDS,
    FALLBACK_USED,
    HASH,
    KEYS,
    MATERIAL,
    SCHEMA,
    VERSIONS,
    hash_of,
    material_of,
)
from actum.runs.contract.seal import Sealed, require_seal
from actum.store.keys import PublicKey
from actum.value import value

MISSING = "EXECUTION_CONTRACT_MISSING"
UNSUPPORTED = "UNSUPPORTED_CONTRACT"
MISMATCH = "CONTRACT_MISMATCH"

#: Of each version, and of the seed, the values that can be carried out.
Supported = Mapping[str, Sequence[Json]]
#: Those of this code. It lists an older version for as long as it can carry that out as well.
SUPPORTED: Supported = {name: (held,) for name, held in VERSIONS.items()}


@value
class Flaw:
    """Why a stored contract is refused."""

    code: str
    message: str
    details: Mapping[str, Json]


def flaw_in(
    metadata: Mapping[str, Any],
    revision: int,
    envelope: str | None,
    about: Sealed,
    trusted: Mapping[str, PublicKey],
    supported: Supported = SUPPORTED,
) -> Flaw | None:
    """What is wrong with a stored contract; ``None`` if nothing is."""
    if not metadata and revision == 0 and envelope is None:
        return Flaw(
            code=MISSING,
            message="The run has no execution contract; `actum runs continue` attaches one.",
            details={},
        )
    return (
        _unsupported(metadata, supported)
        or _inconsistent(metadata, supported)
        or _unsealed(envelope, about, trusted)
    )


def _unsupported(metadata: Mapping[str, Any], supported: Supported) -> Flaw | None:
    """Versions that are there and that this code does not know."""
    material = metadata.get(MATERIAL)
    named = dict(material) if isinstance(material, Mapping) else {}
    if SCHEMA in metadata:
        named.setdefault(SCHEMA, metadata[SCHEMA])
    found = sorted(
        name
        for name, known in supported.items()
        if name in named and not any(_same(named[name], each) for each in known)
    )
    stored = metadata.get(SCHEMA, supported[SCHEMA][0])
    if not any(_same(stored, each) for each in supported[SCHEMA]) and SCHEMA not in found:
        found = sorted([*found, SCHEMA])
    if not found:
        return None
    ranges: dict[str, Json] = {name: list(known) for name, known in supported.items()}
    fields: list[Json] = list(found)
    return Flaw(
        code=UNSUPPORTED,
        message=f"This version of Actum does not support {', '.join(found)} of the contract.",
        details={"unsupportedFields": fields, "supportedRanges": ranges},
    )


def _inconsistent(metadata: Mapping[str, Any], supported: Supported) -> Flaw | None:
    """Keys that are missing, unknown, or not what the configuration gives under the versions that
    the contract names. These are supported: that was checked first."""
    wrong = [key for key in KEYS if key not in metadata]
    wrong += [str(key)[:80] for key in metadata if key not in KEYS]
    config = metadata.get(EFFECTIVE)
    if EFFECTIVE in metadata and problems_in(config, whole=True):
        wrong.append(EFFECTIVE)
    elif isinstance(config, Mapping):
        versions = _versions_of(metadata, supported)
        material = material_of(config, versions)
        expected: dict[str, Json] = {
            CONFIG: dict(config),
            SCHEMA: versions[SCHEMA],
            HASH: hash_of(material),
            MATERIAL: material,
        }
        wrong += [
            key
            for key, held in expected.items()
            if key in metadata and not _same(metadata[key], held)
        ]
    if FALLBACK_USED in metadata and FALLBACK_FIELDS in metadata:
        wrong += _wrong_fallback(metadata[FALLBACK_USED], metadata[FALLBACK_FIELDS])
    if not wrong:
        return None
    return _mismatch(sorted(set(wrong)))


def _versions_of(metadata: Mapping[str, Any], supported: Supported) -> Mapping[str, Json]:
    """The versions that a contract names; of one that it leaves out, a supported value, which then
    differs from the contract."""
    stored = metadata.get(MATERIAL)
    named = stored if isinstance(stored, Mapping) else {}
    return {name: named.get(name, known[0]) for name, known in supported.items()}


def _wrong_fallback(used: object, fields: object) -> list[str]:
    if not isinstance(fields, list) or not all(
        isinstance(name, str) and name in BY_NAME and BY_NAME[name].variables for name in fields
    ):
        return [FALLBACK_FIELDS]
    if fields != sorted(set(fields)):
        return [FALLBACK_FIELDS]
    return [] if used is bool(fields) else [FALLBACK_USED]


def _unsealed(envelope: str | None, about: Sealed, trusted: Mapping[str, PublicKey]) -> Flaw | None:
    try:
        require_seal(envelope, about, trusted)
    except VerificationFailed as error:
        return _mismatch(["seal"], f" {error.message}")
    return None


def _mismatch(keys: Sequence[str], why: str = "") -> Flaw:
    listed: list[Json] = list(keys)
    return Flaw(
        code=MISMATCH,
        message=f"The stored execution contract is not consistent: {', '.join(keys)}.{why}",
        details={"kind": "stored", "keys": listed},
    )


def _same(one: object, other: object) -> bool:
    """Equal as JSON. In Python, 1 == True == 1.0."""
    try:
        return canonical(one) == canonical(other)
    except NotCanonical:
        return False
