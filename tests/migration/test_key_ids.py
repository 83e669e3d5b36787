"""Homes whose records, locks and key files name keys by the SHA-256 of the raw public key."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from evidence.factories import House, bad

from actum.contract.approvers import Role, approvers_of
from actum.contract.os_user import OsUser
from actum.doors.cli.main import _run
from actum.errors import Refused
from actum.registry.lock import Lock, read_lock, write_lock
from actum.store.keys import Keyring, PublicKey
from common.old_homes import old_home


@contextmanager
def an_earlier_version() -> Iterator[None]:
    """The writer of the former ids: this version with the former rule."""

    def former(cls: type[PublicKey], raw: bytes) -> PublicKey:
        return cls(keyid=hashlib.sha256(raw).hexdigest(), raw=raw)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PublicKey, "from_raw", classmethod(former))
        yield


def signers(house: House) -> list[str]:
    return [
        each.envelope["signatures"][0]["keyid"] for each in reversed(house.receipts.latest(100))
    ]


def lock_signers(root: Path) -> list[str]:
    signatures = json.loads((root / "tools.lock").read_bytes())["signatures"]
    return [signature["keyid"] for signature in signatures]


@pytest.mark.parametrize("schema", [1, 7, 8])
def test_a_kept_home_verifies_and_what_it_writes_now_has_the_id_of_now(
    tmp_path: Path, schema: int
) -> None:
    (tmp_path / "actum.toml").write_text("[runners]\nlocal = true\n")
    house = House.open(old_home(schema, tmp_path))
    public = house.keyring.signer.public
    before = signers(house)
    assert set(before) <= {public.former_keyid}
    house.execute()
    assert signers(house) == [*before, public.keyid]
    assert bad(house.verifier.verify_all()) == []
    house.database.close()


def test_a_receipt_with_the_former_id_verifies_alone_and_a_changed_one_does_not(
    tmp_path: Path,
) -> None:
    with an_earlier_version():
        house = House.open(tmp_path / ".actum")
        facts = house.execute()
    kept = house.receipts.find(facts.receipt_id)
    house.database.close()
    public = house.keyring.signer.public
    assert kept.envelope["signatures"][0]["keyid"] == hashlib.sha256(public.raw).hexdigest()
    key, receipt = tmp_path / "project.pub", tmp_path / "receipt.json"
    key.write_text(public.pem)
    receipt.write_bytes(kept.encoded)
    assert verify(receipt, key) == 0
    payload = kept.envelope["payload"]
    receipt.write_text(json.dumps({**kept.envelope, "payload": "AAAA" + payload[4:]}))
    assert verify(receipt, key) == 1


def verify(receipt: Path, key: Path) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return _run(["verify", str(receipt), "--key", str(key)])


def test_rotations_before_and_after_the_change_form_one_succession(tmp_path: Path) -> None:
    home = tmp_path / ".actum"
    with an_earlier_version():
        house = House.open(home)
        write_lock(tmp_path, Lock(), house.keyring.signer)
        for _ in range(2):
            house.execute()
            house.rotate()
        house.execute()
        house.database.close()
    house = House.open(home)
    former = house.keyring.signer.public
    assert lock_signers(tmp_path) == [former.former_keyid]
    assert read_lock(tmp_path, house.keyring.approving) == Lock()
    house.execute()
    done = house.rotate()
    assert done.retired == former.keyid
    assert done.lock_signed
    assert lock_signers(tmp_path) == [done.signer.keyid]
    house.execute()
    assert bad(house.verifier.verify_all()) == []
    assert [path.name for path in (home / "keys").glob("*.key")] == [f"{done.signer.keyid}.key"]
    # The retired one approves nothing any more, under neither of its ids.
    assert former.keyid not in Keyring.open(home).approving
    assert former.keyid in Keyring.open(home).trusted
    house.database.close()


def test_a_lock_that_names_the_id_of_now_is_ours_although_the_key_file_is_older(
    tmp_path: Path,
) -> None:
    home = tmp_path / ".actum"
    with an_earlier_version():
        House.open(home).database.close()
    house = House.open(home)
    write_lock(tmp_path, Lock(), house.keyring.signer)
    assert lock_signers(tmp_path) == [house.keyring.signer.keyid]
    assert house.rotate().lock_signed
    house.database.close()


def test_a_rotation_that_an_earlier_version_left_half_done_is_completed(tmp_path: Path) -> None:
    home = tmp_path / ".actum"

    class Stopped(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    with an_earlier_version(), pytest.MonkeyPatch.context() as patch:
        house = House.open(home)
        house.execute()
        retired = house.keyring.signer.keyid
        patch.setattr("actum.evidence.rotation.switch_to_next", stop)
        with pytest.raises(Stopped):
            house.rotate()
        house.database.close()
    house = House.open(home)
    house.execute()
    assert signers(house)[-1] == Keyring.open(home).signer.keyid
    assert Keyring.open(home).signer.public.former_keyid != retired
    assert bad(house.verifier.verify_all()) == []
    house.database.close()


def test_an_approver_may_be_tied_to_either_id_and_to_no_other(tmp_path: Path) -> None:
    public = Keyring.open(tmp_path / ".actum", create=True).signer.public
    user = OsUser(uid=1000, name="ada")
    for keyid in public.ids:
        named = approvers_of({"approvers.ada": {"roles": ["tools"], "key": keyid}})
        assert named.require("ada", Role.TOOLS, user=user, key_ids=public.ids) == "tools"
    other = approvers_of({"approvers.ada": {"roles": ["tools"], "key": "0" * 64}})
    with pytest.raises(Refused, match=public.keyid):
        other.require("ada", Role.TOOLS, user=user, key_ids=public.ids)
