"""The signed seal of a run's contract.

The hash in the metadata is recomputable by anyone who can write the row, and it does not cover the
fallback fields. The seal is a DSSE envelope over everything that a run is carried out by: its id,
the revision of the contract, all seven keys, the digest of the work file and of the folder's path.
A contract that was copied from another run, or edited consistently, has no valid seal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from actum.contract.canonical import canonical, sha256_json
from actum.contract.model import Json
from actum.errors import VerificationFailed
from actum.store import dsse
from actum.store.keys import PublicKey, Signer
from actum.value import value

PAYLOAD_TYPE = "application/vnd.actum.run-contract+json"


@value
class Sealed:
    """What a seal states."""

    run_id: str
    revision: int
    metadata: Mapping[str, Json]
    source_sha256: str  #: of the work file
    workspace_sha256: str  #: of the folder's path

    def statement(self) -> dict[str, Json]:
        return {
            "run_id": self.run_id,
            "revision": self.revision,
            "metadata_sha256": sha256_json(dict(self.metadata)),
            "source_sha256": self.source_sha256,
            "workspace_sha256": self.workspace_sha256,
        }


def seal(about: Sealed, signer: Signer) -> str:
    """The envelope, as JSON text."""
    return dsse.sign_encoded(canonical(about.statement()), PAYLOAD_TYPE, signer).decode()


def require_seal(envelope: str | None, about: Sealed, trusted: Mapping[str, PublicKey]) -> None:
    """Raise `VerificationFailed` unless a trusted key sealed exactly this."""
    if envelope is None:
        raise VerificationFailed("seal: it is missing.")
    try:
        document: Any = json.loads(envelope)
    except ValueError as error:
        raise VerificationFailed("seal: it is not JSON.") from error
    if not isinstance(document, Mapping):
        raise VerificationFailed("seal: it is not an envelope.")
    payload = dsse.verify(document, trusted, payload_type=PAYLOAD_TYPE)
    if payload != canonical(about.statement()):
        raise VerificationFailed("seal: it was made for another run, revision or contract.")
