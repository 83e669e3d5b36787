"""DSSE: ours and securesystemslib's envelopes are each other's, and one changed byte breaks one."""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, SSlibKey

from actum.contract.encoder import encode
from actum.errors import VerificationFailed
from actum.store import dsse
from actum.store.keys import Keyring, PublicKey

KIND = "application/vnd.example+json"
PAYLOAD = b'{"answer":42}'


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    return Keyring.open(tmp_path_factory.mktemp("home"), create=True)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[CryptoSigner, PublicKey]:
    home = tmp_path_factory.mktemp("theirs")
    own = Keyring.open(home, create=True)
    (path,) = (Path(home) / "keys").glob("*.key")
    private: Any = load_pem_private_key(path.read_bytes(), password=None)
    public = own.public(own.signer.keyid)
    return CryptoSigner(private, _their_key(public)), public


def _their_key(public: PublicKey) -> SSlibKey:
    return SSlibKey(public.keyid, "ed25519", "ed25519", {"public": public.raw.hex()})


@given(payload=st.binary(max_size=200), kind=st.text(max_size=30))
def test_the_signed_bytes_are_those_of_securesystemslib(payload: bytes, kind: str) -> None:
    kind = kind.encode("utf-8", "ignore").decode()
    assert dsse.pae(kind, payload) == Envelope(payload, kind, {}).pae()


def test_securesystemslib_believes_what_we_sign(ring: Keyring) -> None:
    envelope = dsse.sign(PAYLOAD, KIND, ring.signer)
    loaded = Envelope.from_dict(copy.deepcopy(envelope))
    assert loaded.payload == PAYLOAD
    key = _their_key(ring.public(ring.signer.keyid))
    assert set(loaded.verify([key], 1)) == {ring.signer.keyid}


def test_we_believe_what_securesystemslib_signs(theirs: tuple[CryptoSigner, PublicKey]) -> None:
    signer, public = theirs
    envelope = Envelope(PAYLOAD, KIND, {})
    envelope.sign(signer)
    assert dsse.verify(envelope.to_dict(), {public.keyid: public}) == PAYLOAD


def test_one_flipped_byte_anywhere_is_noticed(ring: Keyring) -> None:
    envelope = dsse.sign(PAYLOAD, KIND, ring.signer)
    assert dsse.verify(envelope, ring.trusted) == PAYLOAD
    places: list[tuple[Any, ...]] = [
        ("payload",),
        ("payloadType",),
        ("signatures", 0, "sig"),
        ("signatures", 0, "keyid"),
    ]
    tried = 0
    for *way, last in places:
        for index in range(len(_at(envelope, [*way, last]))):
            for bit in (1, 2, 4):
                broken = copy.deepcopy(envelope)
                holder = _at(broken, way)
                text = holder[last]
                holder[last] = text[:index] + chr(ord(text[index]) ^ bit) + text[index + 1 :]
                with pytest.raises(VerificationFailed):
                    dsse.verify(broken, ring.trusted)
                tried += 1
    assert tried > 500


def _at(value: Any, way: list[Any]) -> Any:
    for step in way:
        value = value[step]
    return value


def test_one_flipped_byte_of_the_payload_itself_is_noticed(ring: Keyring) -> None:
    envelope = dsse.sign(PAYLOAD, KIND, ring.signer)
    for index in range(len(PAYLOAD)):
        changed = bytearray(PAYLOAD)
        changed[index] ^= 0x80
        broken = {**envelope, "payload": base64.b64encode(changed).decode()}
        with pytest.raises(VerificationFailed, match="not the signature"):
            dsse.verify(broken, ring.trusted)


def test_a_signature_by_a_stranger_names_the_stranger(ring: Keyring) -> None:
    envelope = dsse.sign(PAYLOAD, KIND, ring.signer)
    with pytest.raises(VerificationFailed, match=ring.signer.keyid):
        dsse.verify(envelope, {})


def test_a_stranger_beside_a_trusted_key_does_no_harm_but_a_forger_does(
    ring: Keyring, tmp_path: Path
) -> None:
    stranger = Keyring.open(tmp_path, create=True)
    envelope = dsse.sign(PAYLOAD, KIND, ring.signer)
    second = dsse.sign(PAYLOAD, KIND, stranger.signer)["signatures"][0]
    envelope["signatures"].insert(0, second)
    assert dsse.verify(envelope, ring.trusted) == PAYLOAD
    envelope["signatures"][0] = {**second, "keyid": ring.signer.keyid}
    with pytest.raises(VerificationFailed, match=r"signatures\[0\]\.sig"):
        dsse.verify(envelope, ring.trusted)


def test_a_signed_document_of_another_type_is_not_taken_for_ours(ring: Keyring) -> None:
    envelope = dsse.sign(PAYLOAD, KIND, ring.signer)
    with pytest.raises(VerificationFailed, match="payloadType"):
        dsse.verify(envelope, ring.trusted, payload_type="application/vnd.other+json")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"signatures": []}, "signatures"),
        ({"signatures": None}, "signatures"),
        ({"signatures": [{"sig": "AA=="}]}, "keyid"),
        ({"payload": None}, "payload"),
        ({"payload": "e30"}, "payload"),
        ({"payload": "e31="}, "canonical"),
        ({"payloadType": 1}, "payloadType"),
    ],
)
def test_a_malformed_envelope_is_refused_by_the_name_of_its_part(
    ring: Keyring, change: dict[str, Any], named: str
) -> None:
    envelope = dsse.sign(PAYLOAD, KIND, ring.signer)
    with pytest.raises(VerificationFailed, match=named):
        dsse.verify({**envelope, **change}, ring.trusted)


@given(payload=st.binary(max_size=200))
def test_the_encoded_form_is_the_same_envelope(ring: Keyring, payload: bytes) -> None:
    envelope = dsse.sign(payload, KIND, ring.signer)
    assert dsse.sign_encoded(payload, KIND, ring.signer) == encode(envelope)
