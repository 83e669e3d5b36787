"""Replaces the signing key: `actum keys rotate`.

    1. a new key is made and stored, unused
    2. the log gets a KEY_ROTATE record that both keys have signed, under a checkpoint of both
    3. the new key becomes the one that signs (one rename)
    4. tools.lock is signed by it, if it was signed by the old one
    5. the old private key is removed; its public half stays, to verify what it signed

Step 2 decides. A crash before it leaves only a spare file; after a crash behind it, the next
writer to the log continues with step 3. The log, not the key files, states which key was current
for which record, so verification notices what the old key signs later.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from actum.contract.model import Json
from actum.evidence.ledger import Ledger
from actum.evidence.records.audit import VERSION, Kind
from actum.evidence.records.encoding import encoded
from actum.evidence.records.facts import ACTUM_VERSION
from actum.evidence.records.trace import rfc3339
from actum.registry.approval_workflow import one_decision
from actum.registry.lock import lock_bytes, read_lock, write_lock
from actum.store import dsse
from actum.store.keys import (
    PublicKey,
    Signer,
    forget_retired,
    prepare_next,
    public_keys,
    switch_to_next,
)
from actum.value import value

PAYLOAD_TYPE = "application/vnd.actum.key-rotation+json"
_FIELDS = ("v", "kind", "ts", "versions", "retired_keyid", "keyid", "public_key")


@value
class Rotated:
    retired: str  #: keyid
    signer: Signer
    seq: int  #: of the audit record that says so
    lock_signed: bool


def rotation_record(retiring: Signer, successor: Signer, at: datetime) -> dict[str, Json]:
    document: dict[str, Json] = {
        "v": VERSION,
        "kind": Kind.KEY_ROTATE,
        "ts": rfc3339(at),
        "versions": {"actum": ACTUM_VERSION},
        "retired_keyid": retiring.keyid,
        "keyid": successor.keyid,
        "public_key": base64.b64encode(successor.public.raw).decode(),
    }
    message = dsse.pae(PAYLOAD_TYPE, encoded(document))
    return {
        **document,
        "retired_signature": base64.b64encode(retiring.sign(message)).decode(),
        "signature": base64.b64encode(successor.sign(message)).decode(),
    }


def rotation_problem(
    document: Mapping[str, Json], in_turn: str | None, trusted: Mapping[str, PublicKey]
) -> str:
    """What is wrong with a KEY_ROTATE record while `in_turn` is the current key; "" if nothing."""
    if set(document) != {*_FIELDS, "retired_signature", "signature"}:
        return "it has other fields than a rotation"
    retired = trusted.get(in_turn or "")
    if retired is None or document["retired_keyid"] not in retired.ids:
        return f"it retires {document['retired_keyid']}; the key in turn was {in_turn}"
    try:
        successor = PublicKey.from_raw(base64.b64decode(document["public_key"], validate=True))
        by_retired = base64.b64decode(document["retired_signature"], validate=True)
        by_successor = base64.b64decode(document["signature"], validate=True)
    except (binascii.Error, ValueError, TypeError):
        return "a key or signature in it is not base64"
    message = dsse.pae(PAYLOAD_TYPE, encoded({name: document[name] for name in _FIELDS}))
    if document["keyid"] not in successor.ids:
        return "its public key is not the one it names"
    if not (retired.verifies(message, by_retired) and successor.verifies(message, by_successor)):
        return "it is not signed by both keys"
    return ""


def rotate(
    ledger: Ledger, *, root: Path, home: Path, approving: Mapping[str, PublicKey], at: datetime
) -> Rotated:
    """Carry out a rotation for the project at `root`; may be repeated after a crash."""
    read_lock(root, approving)  # an untrusted lock stops the rotation before it begins
    successor = prepare_next(home)
    with ledger.log.last_page() as page:
        retiring = page.signer
        seq = page.append(rotation_record(retiring, successor, at))
        page.hand_over(successor)
    signer = switch_to_next(home, successor.public)
    # Read again under the lock: a decision made meanwhile (a blocked tool) must not be lost.
    with one_decision(home / "keys"):
        # Any key of this home: an earlier rotation may have stopped at this point.
        own = {keyid for key in public_keys(home) for keyid in key.ids}
        ours = not own.isdisjoint(_lock_signers(root))
        if ours:
            write_lock(root, read_lock(root, approving), signer)
    forget_retired(home)
    return Rotated(retired=retiring.keyid, signer=signer, seq=seq, lock_signed=ours)


def _lock_signers(root: Path) -> set[str]:
    content = lock_bytes(root)
    signatures = json.loads(content)["signatures"] if content else []
    return {signature["keyid"] for signature in signatures}
