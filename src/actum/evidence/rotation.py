"""Another key signs from here on: `actum keys rotate`.

    1. the new key is made and kept beside, unused
    2. the log gets a KEY_ROTATE record that both keys have signed, under a checkpoint of both
    3. the new key becomes the one that signs (one rename)
    4. tools.lock is signed by it, if it was signed by the old one
    5. the old private key is removed; its public half stays, for what it signed

Step 2 decides. A crash before it has changed nothing but a spare file; after a crash behind it,
whoever next writes to the log carries on with step 3. The log, not the key files, says which key
was in turn for which record, so what the old key signs later is noticed.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from actum.contract.model import Json
from actum.evidence.audit import VERSION, Kind
from actum.evidence.encoding import encoded
from actum.evidence.facts import ACTUM_VERSION
from actum.evidence.ledger import Ledger
from actum.evidence.trace import rfc3339
from actum.registry.change import one_decision
from actum.registry.lock import lock_bytes, read_lock, write_lock
from actum.store import dsse
from actum.store.keys import (
    PublicKey,
    Signer,
    forget_retired,
    prepare_next,
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


def rotation_record(retiring: Signer, heir: Signer, at: datetime) -> dict[str, Json]:
    document: dict[str, Json] = {
        "v": VERSION,
        "kind": Kind.KEY_ROTATE,
        "ts": rfc3339(at),
        "versions": {"actum": ACTUM_VERSION},
        "retired_keyid": retiring.keyid,
        "keyid": heir.keyid,
        "public_key": base64.b64encode(heir.public.raw).decode(),
    }
    message = dsse.pae(PAYLOAD_TYPE, encoded(document))
    return {
        **document,
        "retired_signature": base64.b64encode(retiring.sign(message)).decode(),
        "signature": base64.b64encode(heir.sign(message)).decode(),
    }


def rotation_problem(
    document: Mapping[str, Json], in_turn: str | None, trusted: Mapping[str, PublicKey]
) -> str:
    """What is wrong with a KEY_ROTATE record where the key `in_turn` signs; "" if nothing is."""
    if set(document) != {*_FIELDS, "retired_signature", "signature"}:
        return "it has other fields than a rotation"
    retired = trusted.get(in_turn or "")
    if retired is None or document["retired_keyid"] != in_turn:
        return f"it retires {document['retired_keyid']}; the key in turn was {in_turn}"
    try:
        heir = PublicKey.from_raw(base64.b64decode(document["public_key"], validate=True))
        by_retired = base64.b64decode(document["retired_signature"], validate=True)
        by_heir = base64.b64decode(document["signature"], validate=True)
    except (binascii.Error, ValueError, TypeError):
        return "a key or signature in it is not base64"
    message = dsse.pae(PAYLOAD_TYPE, encoded({name: document[name] for name in _FIELDS}))
    if heir.keyid != document["keyid"]:
        return "its public key is not the one it names"
    if not (retired.verifies(message, by_retired) and heir.verifies(message, by_heir)):
        return "it is not signed by both keys"
    return ""


def rotate(
    ledger: Ledger, *, root: Path, home: Path, approving: Mapping[str, PublicKey], at: datetime
) -> Rotated:
    """Carry out a rotation for the project at `root`; may be repeated after a crash."""
    read_lock(root, approving)  # one that is not trusted stops the rotation before it begins
    heir = prepare_next(home)
    with ledger.log.last_page() as page:
        retiring = page.signer
        seq = page.append(rotation_record(retiring, heir, at))
        page.hand_over(heir)
    signer = switch_to_next(home, heir.keyid)
    # Read again, and held: a decision since then (a tool that was blocked) must not be undone.
    with one_decision(home / "keys"):
        # Any key that ever was ours: a former rotation may have stopped just here.
        ours = any((home / "keys" / f"{keyid}.pub").exists() for keyid in _lock_signers(root))
        if ours:
            write_lock(root, read_lock(root, approving), signer)
    forget_retired(home)
    return Rotated(retired=retiring.keyid, signer=signer, seq=seq, lock_signed=ours)


def _lock_signers(root: Path) -> set[str]:
    content = lock_bytes(root)
    signatures = json.loads(content)["signatures"] if content else []
    return {signature["keyid"] for signature in signatures}
