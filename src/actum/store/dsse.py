"""DSSE v1 envelopes: bytes, their type and who signed both.

The signature covers `PAE(payloadType, payload)`. It is one line here, because importing
securesystemslib would cost every command 60 ms; tests/unit/store/test_dsse.py proves that both
sides accept each other's envelopes.

Stricter than DSSE asks: only standard base64 in its canonical form is read, so that no byte of an
envelope can be changed without breaking it, and a signature counts only under the keyid it names.
Fields that DSSE does not define are ignored, as it demands; nothing is ever read from them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from actum.errors import VerificationFailed
from actum.store.keys import PublicKey, Signer, key_named


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: both parts, each with its length in bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, payload_type: str, signer: Signer) -> dict[str, Any]:
    signature = signer.sign(pae(payload_type, payload))
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [{"keyid": signer.keyid, "sig": base64.b64encode(signature).decode()}],
    }


def sign_encoded(payload: bytes, payload_type: str, signer: Signer) -> bytes:
    """The same as JSON, keys sorted: none of its values needs escaping."""
    signature = signer.sign(pae(payload_type, payload))
    return b'{"payload":"%s","payloadType":"%s","signatures":[{"keyid":"%s","sig":"%s"}]}' % (
        binascii.b2a_base64(payload, newline=False),
        payload_type.encode(),
        signer.keyid.encode(),
        binascii.b2a_base64(signature, newline=False),
    )


def verify(
    envelope: Mapping[str, Any],
    trusted: Mapping[str, PublicKey],
    *,
    payload_type: str | None = None,
) -> bytes:
    """The payload, if a trusted key signed it; raises `VerificationFailed` naming what is wrong.

    Signatures by unknown keys are passed over, but one that claims a trusted key must be right.
    Callers that expect one type of payload name it, so that a signed document of another type
    cannot be passed off as theirs.
    """
    found_type = envelope.get("payloadType")
    if not isinstance(found_type, str):
        raise VerificationFailed("payloadType: it is missing or not a string.")
    if payload_type is not None and found_type != payload_type:
        raise VerificationFailed(f"payloadType: {found_type!r} where {payload_type!r} is expected.")
    payload = _decode(envelope.get("payload"), "payload")
    signatures = envelope.get("signatures")
    if not isinstance(signatures, list) or not signatures:
        raise VerificationFailed("signatures: the envelope is not signed.")
    message = pae(found_type, payload)
    trusted_signatures, strangers = 0, []
    for index, signature in enumerate(signatures):
        where = f"signatures[{index}]"
        if not isinstance(signature, Mapping) or not isinstance(signature.get("keyid"), str):
            raise VerificationFailed(f"{where}.keyid: it is missing or not a string.")
        key = key_named(trusted, signature["keyid"])
        if key is None:
            strangers.append(signature["keyid"])
        elif key.verifies(message, _decode(signature.get("sig"), f"{where}.sig")):
            trusted_signatures += 1
        else:
            raise VerificationFailed(
                f"{where}.sig: it is not the signature of key {key.keyid} over this payload."
            )
    if not trusted_signatures:
        raise NotTrusted(tuple(strangers))
    return payload


class NotTrusted(VerificationFailed):
    """No key that is trusted here has signed it."""

    def __init__(self, keyids: tuple[str, ...]) -> None:
        super().__init__(f"signatures: none is by a trusted key; signed by {', '.join(keyids)}.")
        self.keyids = keyids


def signers(envelope: Mapping[str, Any], trusted: Mapping[str, PublicKey]) -> list[str]:
    """The keys that an envelope names, trusted ones by their current id. Proves nothing."""
    named = [signature.get("keyid") for signature in envelope.get("signatures", ())]
    known = [key_named(trusted, str(keyid)) for keyid in named]
    return [key.keyid if key else str(keyid) for keyid, key in zip(named, known, strict=True)]


def _decode(text: object, where: str) -> bytes:
    if not isinstance(text, str):
        raise VerificationFailed(f"{where}: it is missing or not a string.")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise VerificationFailed(f"{where}: it is not base64.") from error
    if base64.b64encode(data).decode() != text:
        raise VerificationFailed(f"{where}: it is not in base64's canonical form.")
    return data
