"""Another key signs from here on, and a crash at any step leaves a home that works."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from actum.errors import EvidenceUnavailable, Refused
from actum.evidence.ledger import Ledger
from actum.evidence.log import Log
from actum.evidence.records.encoding import encoded
from actum.evidence.records.receipt import Receipt
from actum.evidence.rotation import rotate
from actum.registry.approval_workflow import deciding
from actum.registry.lock import Lock, read_lock, write_lock
from actum.registry.model import Change, ScopeChange, ToolStatus
from actum.store import note
from actum.store.anchor import write_anchor
from actum.store.keys import Keyring, PublicKey, Signer, switch_to_next
from actum.value import replace

from .factories import RESULT, STARTED, House, bad, make_facts, make_intent, make_refusal, tamper


def lock_signer(root: Path) -> str:
    (signature,) = json.loads((root / "tools.lock").read_bytes())["signatures"]
    return str(signature["keyid"])


def verified(home: Path) -> list[tuple[str, str]]:
    house = House.open(home)
    try:
        return bad(house.verifier.verify_all())
    finally:
        house.database.close()


def test_the_new_key_signs_everything_and_the_old_receipts_still_hold(house: House) -> None:
    write_lock(house.home.parent, Lock(), house.keyring.signer)
    before = house.execute()
    old = house.keyring.signer.keyid
    done = house.rotate()
    after = house.execute()  # the same open ledger goes on, under the new key
    assert done.retired == old
    assert done.signer.keyid != old
    assert done.lock_signed
    keyring = Keyring.open(house.home)
    assert keyring.signer.keyid == done.signer.keyid
    assert set(keyring.trusted) == {old, done.signer.keyid}
    assert lock_signer(house.home.parent) == done.signer.keyid
    assert read_lock(house.home.parent, keyring.approving) == Lock()
    signers = [
        house.receipts.find(facts.receipt_id).envelope["signatures"][0]["keyid"]
        for facts in (before, after)
    ]
    assert signers == [old, done.signer.keyid]
    assert verified(house.home) == []
    # The verifier of before the rotation finds the new key by itself.
    assert bad(house.verifier.verify_execution(after.receipt_id)) == []
    (private,) = (house.home / "keys").glob("*.key")
    assert private.name == f"{done.signer.keyid}.key"


def test_the_log_says_which_key_follows_which_and_both_have_signed_it(house: House) -> None:
    house.execute()
    done = house.rotate()
    record = json.loads(house.audit()[-1])
    assert record["kind"] == "KEY_ROTATE"
    assert (record["retired_keyid"], record["keyid"]) == (done.retired, done.signer.keyid)
    found = note.parse(house.ledger.log.checkpoint() or "")
    keys = [house.keyring.signer.public, done.signer.public]
    assert note.verify(found, keys) == (done.retired, done.signer.keyid)
    # A reader that knows only the old key can follow to the new one.
    assert note.verify(found, keys[:1]) == (done.retired,)


def test_many_rotations_make_one_chain(house: House) -> None:
    keyids = [house.keyring.signer.keyid]
    for _ in range(4):
        house.execute()
        keyids.append(house.rotate().signer.keyid)
    house.execute()
    assert len(set(keyids)) == 5
    assert verified(house.home) == []
    origins = {
        text.split("\n")[0] for (text,) in house.database.rows("SELECT note FROM checkpoints")
    }
    assert origins == {f"actum/{keyids[0][:32]}"}


def test_another_process_notices_a_rotation_and_signs_with_the_new_key(house: House) -> None:
    other = House.open(house.home)
    other.execute()
    intent = make_intent()
    opened = other.ledger.write_ahead(intent)  # in flight while the key changes
    done = house.rotate()
    receipt = other.ledger.seal(make_facts(intent, opened=opened), RESULT)
    assert receipt.envelope["signatures"][0]["keyid"] == done.signer.keyid
    other.database.close()
    assert verified(house.home) == []


def test_a_rotation_between_signing_and_writing_down_is_noticed(house: House) -> None:
    other = House.open(house.home)
    intent = make_intent()
    opened = other.ledger.write_ahead(intent)
    heirs: list[str] = []

    def cleanup() -> tuple[str, ...]:  # asked when the receipt is signed already
        heirs.append(house.rotate().signer.keyid)
        return ()

    facts = make_facts(intent, opened=opened, leftovers=None, cleanup=cleanup)
    receipt = other.ledger.seal(facts, RESULT)
    (signature,) = receipt.envelope["signatures"]
    assert [signature["keyid"]] == heirs
    other.database.close()
    again = House.open(house.home)
    assert bad(again.verifier.verify_all()) == []
    assert again.receipts.find(facts.receipt_id).sha256 == receipt.sha256
    again.database.close()


def test_what_the_retired_key_signs_after_the_rotation_is_flagged(house: House) -> None:
    retired = house.keyring.signer
    house.rotate()
    # Its holder writes past our code: a receipt, and the record and checkpoint to go with it.
    forger = Ledger(
        database=house.database, blobs=house.blobs, signer=retired, redact=lambda data: data
    )
    _believe(forger.log, retired, house.ledger.log)
    receipt = forger.seal(make_refusal(), None)
    found = bad(House.open(house.home).verifier.verify_all())
    assert (f"receipt {receipt.receipt_id}", "signer") in found
    assert ("checkpoint 3", "signer") in found
    with pytest.raises(Exception, match="was changed"):
        House.open(house.home).ledger.malformed(b"", STARTED)


def _believe(log: Log, signer: Signer, other: Log) -> None:
    """Make `log` take the end of `other` for its own, and `signer` for the key in turn."""
    log.signer, log._end, log._revision = signer, other._end, other._revision


def test_what_the_retired_key_lays_down_is_not_filed(house: House) -> None:
    retired = house.keyring.signer
    house.rotate()
    house.execute()
    house.database.write_out()
    filed = house.audit()
    forger = Ledger(
        database=house.database, blobs=house.blobs, signer=retired, redact=lambda data: data
    )
    _believe(forger.log, retired, house.ledger.log)
    intent = make_intent()
    forger.seal(make_facts(intent, opened=forger.write_ahead(intent)), RESULT)
    fresh = House.open(house.home)
    with pytest.raises(EvidenceUnavailable, match="frame 0 was not written by this home's key"):
        fresh.audit()
    assert bad(fresh.verifier.verify_all()) == [("journal", "frames")]
    with fresh.database.tables_only():
        assert fresh.audit() == filed


def test_a_receipt_replaced_by_one_of_the_retired_key_is_flagged(house: House) -> None:
    retired = house.keyring.signer
    house.rotate()
    facts = house.execute()
    kept = house.receipts.find(facts.receipt_id)
    statement = json.loads(base64.b64decode(kept.envelope["payload"]))
    forged = Receipt(facts.receipt_id, encoded(statement), retired)
    tamper(
        house,
        "UPDATE receipts SET envelope = ?, sha256 = ?",
        forged.encoded.decode(),
        forged.sha256,
    )
    house = House.open(house.home)
    for found in (house.verifier.verify_all(), house.verifier.verify_execution(facts.receipt_id)):
        assert (f"receipt {facts.receipt_id}", "signer") in bad(found)


@pytest.mark.parametrize("field", ["retired_keyid", "keyid", "public_key", "signature", "ts"])
def test_a_rotation_that_was_edited_is_named(house: House, field: str) -> None:
    house.rotate()
    record = json.loads(house.audit()[-1])
    changed = json.dumps({**record, field: "A" * 64}).encode()
    tamper(house, "UPDATE audit SET record = ? WHERE seq = 1", changed)
    found = bad(House.open(house.home).verifier.verify_all())
    assert ("audit record 1", "leaf hash") in found
    assert ("audit record 1", "key rotation") in found


def test_a_lock_that_is_not_believed_stops_the_rotation_before_it_begins(house: House) -> None:
    house.execute()
    (house.home.parent / "tools.lock").write_text('{"version": 1, "pins": [], "history": []}')
    before = house.audit()
    with pytest.raises(Refused) as caught:
        house.rotate()
    assert caught.value.code == "LOCK_UNTRUSTED"
    assert house.audit() == before
    assert Keyring.open(house.home).signer.keyid == house.keyring.signer.keyid


def test_a_lock_of_someone_else_is_left_as_it_is(house: House, tmp_path: Path) -> None:
    team = Keyring.open(tmp_path / "team", create=True)
    write_lock(house.home.parent, Lock(), team.signer)
    approving = {**Keyring.open(house.home).approving, team.signer.keyid: team.signer.public}
    done = rotate(
        house.ledger,
        root=house.home.parent,
        home=house.home,
        approving=approving,
        at=datetime.now(UTC),
    )
    assert not done.lock_signed
    assert lock_signer(house.home.parent) == team.signer.keyid


def _blocked(lock: Lock) -> Lock:
    """The lock after some decision: here, one line more in its history."""
    change = Change(
        tool_id="TL-001",
        action="block",
        by="ops",
        date="2031-01-01",
        evidence="CVE",
        version="1.0.0",
        digest="0" * 64,
        status=ToolStatus.BLOCKED,
        scope_change=ScopeChange.UNCHANGED,
    )
    return replace(lock, history=(*lock.history, change))


def test_a_lock_that_a_retired_key_signs_approves_nothing(house: House) -> None:
    root, stolen = house.home.parent, house.keyring.signer
    write_lock(root, Lock(), stolen)
    assert read_lock(root, house.keyring.approving) == Lock()  # in its time it does
    heir = house.rotate().signer
    write_lock(root, _blocked(Lock()), stolen)
    for keyring in (house.keyring, Keyring.open(house.home)):  # opened before, and after
        with pytest.raises(Refused) as caught:
            read_lock(root, keyring.approving)
        assert caught.value.code == "LOCK_UNTRUSTED"
    with pytest.raises(Refused):
        house.rotate()  # which would sign it anew
    assert lock_signer(root) == stolen.keyid
    write_lock(root, _blocked(Lock()), heir)
    assert read_lock(root, house.keyring.approving) == _blocked(Lock())


def test_a_retired_key_that_the_settings_name_approves(house: House) -> None:
    root, old = house.home.parent, house.keyring.signer
    house.rotate()
    write_lock(root, Lock(), old)
    write_anchor(house.home, [old.keyid])  # as `actum config approve` does
    named = Keyring.open(house.home, trust=[old.public.pem])
    assert read_lock(root, named.approving) == Lock()


def test_a_process_from_before_signs_the_lock_with_the_new_key(house: House) -> None:
    root, keyring = house.home.parent, house.keyring
    write_lock(root, Lock(), keyring.signer)
    heir = house.rotate().signer
    with deciding(root, keyring, by="ops", evidence="CVE", date="2031-01-01") as decision:
        decision.write(_blocked(decision.read(keyring.approving)))
    assert lock_signer(root) == heir.keyid
    assert read_lock(root, Keyring.open(house.home).approving) == _blocked(Lock())


def test_a_decision_during_a_rotation_is_kept(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, keyring = house.home.parent, house.keyring
    write_lock(root, Lock(), keyring.signer)

    def decided_meanwhile(home: Path, successor: PublicKey) -> Signer:
        with deciding(root, keyring, by="ops", evidence="CVE", date="2031-01-01") as decision:
            decision.write(_blocked(decision.read(keyring.approving)))
        return switch_to_next(home, successor)

    monkeypatch.setattr("actum.evidence.rotation.switch_to_next", decided_meanwhile)
    done = house.rotate()
    assert lock_signer(root) == done.signer.keyid
    assert read_lock(root, Keyring.open(house.home).approving) == _blocked(Lock())


_CRASHING = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from evidence.factories import House
from actum.evidence.rotation import rotate
from actum.store.keys import Keyring, Signer

home, left = Path(sys.argv[1]), int(sys.argv[2])
house = House.open(home)

def count(frame, event, argument):
    # Die at the call number `left` of anything that reaches the disk.
    global left
    if event == "c_call" and argument.__name__ in STEPS:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

STEPS = {"fsync", "rename", "replace", "open", "unlink", "execute"}
sys.setprofile(count)
rotate(house.ledger, root=home.parent, home=home, approving=house.keyring.approving,
       at=datetime(2031, 1, 1, tzinfo=UTC))
sys.setprofile(None)
"""


def _crash(home: Path, step: int) -> int:
    tests = str(Path(__file__).resolve().parent.parent)
    return subprocess.run(
        [sys.executable, "-c", _CRASHING, str(home), str(step), tests],
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    ).returncode


def test_a_crash_at_any_step_leaves_a_home_that_works(tmp_path: Path) -> None:
    crashed, seen = 0, set()
    for step in range(200):
        home = tmp_path / str(step) / ".actum"
        house = House.open(home)
        write_lock(home.parent, Lock(), house.keyring.signer)
        old = house.keyring.signer.keyid
        house.execute()
        house.database.close()
        ended = _crash(home, step)
        if ended == 0:
            break
        assert ended == -9
        crashed += 1
        reopened = House.open(home)
        reopened.execute()  # nothing is in the way of the next execution
        keyring = Keyring.open(home)
        assert bad(reopened.verifier.verify_all()) == [], step
        rotations = [r for r in map(json.loads, reopened.audit()) if r["kind"] == "KEY_ROTATE"]
        assert keyring.signer.keyid == (rotations[-1]["keyid"] if rotations else old), step
        assert read_lock(home.parent, keyring.approving) == Lock()
        seen.add(len(rotations))
        # And the rotation can be done again, to its end.
        done = reopened.rotate()
        reopened.execute()
        assert bad(House.open(home).verifier.verify_all()) == []
        assert lock_signer(home.parent) == done.signer.keyid
        left = sorted(path.name for path in (home / "keys").glob("*.key"))
        assert left == [f"{done.signer.keyid}.key"], step
        reopened.database.close()
    assert ended == 0
    assert crashed > 15
    assert seen == {0, 1}  # points before the deciding step and after it
