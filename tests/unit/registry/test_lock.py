"""tools.lock: signed, readable in a diff, replaced in one step, worthless once touched."""

from __future__ import annotations

import copy
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actum.contract.canonical import canonical
from actum.errors import Refused
from actum.registry.approval_workflow import approve
from actum.registry.lock import PAYLOAD_TYPE, Lock, read_lock, write_lock
from actum.store import dsse

DECISION = {"by": "user:ada", "evidence": "REV-7", "date": "2026-11-15"}


def untrusted(pinned: Any, content: str | bytes, code: str = "LOCK_UNTRUSTED") -> Refused:
    data = content.encode() if isinstance(content, str) else content
    (pinned.root / "tools.lock").write_bytes(data)
    with pytest.raises(Refused) as refused:
        pinned.registry().entry("ripgrep", None)
    assert refused.value.code == code
    assert refused.value.remedy
    return refused.value


def document(pinned: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((pinned.root / "tools.lock").read_text())
    return loaded


def test_a_lock_says_again_what_was_written(pinned: Any) -> None:
    lock = read_lock(pinned.root, pinned.keyring.trusted)
    write_lock(pinned.root, lock, pinned.keyring.signer)
    assert read_lock(pinned.root, pinned.keyring.trusted) == lock
    assert read_lock(pinned.root / "tools", {}) == Lock()


def test_the_file_is_sorted_and_indented_so_that_a_diff_is_readable(pinned: Any) -> None:
    text = (pinned.root / "tools.lock").read_text()
    assert text == json.dumps(document(pinned), indent=2, sort_keys=True) + "\n"
    assert set(document(pinned)) == {"version", "pins", "history", "signatures"}


def test_the_signature_is_dsse_over_the_canonical_rest_of_the_file(pinned: Any) -> None:
    rest = document(pinned)
    signatures = rest.pop("signatures")
    envelope = dsse.sign(canonical(rest), PAYLOAD_TYPE, pinned.keyring.signer)
    assert PAYLOAD_TYPE == "application/vnd.actum.tools-lock+json"
    assert envelope["signatures"] == signatures  # Ed25519 is deterministic


def _leaves(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*way, key))]
    if isinstance(value, list) and value:
        return [leaf for i, item in enumerate(value) for leaf in _leaves(item, (*way, i))]
    return [way]


def test_changing_any_single_value_of_the_lock_is_noticed(pinned: Any) -> None:
    original = document(pinned)
    leaves = _leaves(original)
    assert len(leaves) > 40
    for way in leaves:
        changed = copy.deepcopy(original)
        holder = changed
        for step in way[:-1]:
            holder = holder[step]
        old = holder[way[-1]]
        holder[way[-1]] = (
            old + "x" if isinstance(old, str) else [*old, "x"] if isinstance(old, list) else 7
        )
        untrusted(pinned, json.dumps(changed))


@pytest.mark.parametrize(
    "change",
    [
        lambda lock: lock.pop("signatures"),
        lambda lock: lock.update(signatures=[]),
        lambda lock: lock["pins"].clear(),
        lambda lock: lock["history"].clear(),
        lambda lock: lock["pins"].append(lock["pins"][0]),
        lambda lock: lock.update(extra=1),
        lambda lock: lock["pins"][0].update(extra=1),
    ],
)
def test_a_lock_that_is_unsigned_shortened_or_widened_is_refused(
    pinned: Any, change: Callable[[dict[str, Any]], object]
) -> None:
    lock = document(pinned)
    change(lock)
    untrusted(pinned, json.dumps(lock))


def test_other_spacing_means_the_same_and_is_accepted(pinned: Any) -> None:
    compact = json.dumps(document(pinned))
    (pinned.root / "tools.lock").write_text(compact)
    assert pinned.registry().entry("ripgrep", None).tool.tool_id == "TL-003"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b'{"version": NaN}'])
def test_what_is_not_a_json_object_is_refused(pinned: Any, content: bytes) -> None:
    untrusted(pinned, content)


def test_a_key_that_occurs_twice_is_refused(pinned: Any) -> None:
    text = (pinned.root / "tools.lock").read_text()
    twice = text.replace('"version": 1', '"version": 1,\n  "version": 1')
    assert twice != text
    assert "twice" in untrusted(pinned, twice).message


def signed(pinned: Any, rest: dict[str, Any]) -> str:
    envelope = dsse.sign(canonical(rest), PAYLOAD_TYPE, pinned.keyring.signer)
    return json.dumps({**rest, "signatures": envelope["signatures"]})


def test_even_a_signed_lock_of_another_version_or_shape_is_refused(pinned: Any) -> None:
    rest = document(pinned)
    del rest["signatures"]
    newer = signed(pinned, {**rest, "version": 3})
    assert "version 3" in untrusted(pinned, newer, "LOCK_NEWER").message
    assert "version 0" in untrusted(pinned, signed(pinned, {**rest, "version": 0})).message
    assert "'settings'" in untrusted(pinned, signed(pinned, {**rest, "version": 2})).message
    untrusted(pinned, signed(pinned, {**rest, "pins": [{"tool_id": "TL-003"}]}))
    twice = {**rest, "pins": rest["pins"] * 2}
    assert "share" in untrusted(pinned, signed(pinned, twice)).message


def test_a_signature_over_the_same_bytes_as_another_type_is_refused(pinned: Any) -> None:
    rest = document(pinned)
    del rest["signatures"]
    envelope = dsse.sign(canonical(rest), "application/json", pinned.keyring.signer)
    untrusted(pinned, json.dumps({**rest, "signatures": envelope["signatures"]}))


def test_a_deleted_lock_approves_nothing(pinned: Any) -> None:
    (pinned.root / "tools.lock").unlink()
    with pytest.raises(Refused) as refused:
        pinned.registry().entry("ripgrep", None)
    assert refused.value.code == "TOOL_NOT_APPROVED"


def test_a_reader_sees_the_old_lock_or_the_new_one_never_a_piece(pinned: Any) -> None:
    lock = read_lock(pinned.root, pinned.keyring.trusted)
    longer = replace(lock, history=lock.history * 200)
    stop = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(len(read_lock(pinned.root, pinned.keyring.trusted).history))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(40):
        write_lock(pinned.root, longer if turn % 2 else lock, pinned.keyring.signer)
    stop.set()
    reader.join()
    assert seen <= {1, 200}
    assert sorted(os.listdir(pinned.root)) == [".actum", "tools", "tools.lock"]


def test_two_approvals_at_once_both_stand(repository: Any) -> None:
    ids = ["TL-001", "TL-003", "TL-010", "TL-011", "TL-012"]
    threads = [
        threading.Thread(
            target=approve, args=(repository.root, repository.keyring, i), kwargs=DECISION
        )
        for i in ids
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lock = read_lock(repository.root, repository.keyring.trusted)
    assert [pin.tool_id for pin in lock.pins] == ids
    assert sorted(change.tool_id for change in lock.history) == ids


def test_a_planted_link_is_not_written_through(pinned: Any, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (pinned.root / "tools.lock").unlink()
    (pinned.root / "tools.lock").symlink_to(victim)
    write_lock(pinned.root, Lock(), pinned.keyring.signer)
    assert victim.read_text() == "untouched"
    assert not (pinned.root / "tools.lock").is_symlink()


def test_a_lock_that_did_not_change_is_not_read_again_and_one_that_did_is(
    pinned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from actum.registry import registry as module

    reads: list[Path] = []
    real = module.lock_bytes

    def counted(root: Path) -> bytes | None:
        reads.append(root)
        return real(root)

    monkeypatch.setattr(module, "lock_bytes", counted)
    time.sleep(0.02)  # past the tick in which it was written
    registry = pinned.registry()
    for _ in range(5):
        assert registry.lock().pin("TL-003") is not None
    assert len(reads) == 1
    # In place, as long as before, with its old time put back: the change is noticed all the same.
    file = pinned.root / "tools.lock"
    before, text = file.stat(), file.read_bytes()
    file.write_bytes(text.replace(b"user:ada", b"user:eve", 1))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(Refused) as refused:
        registry.lock()
    assert refused.value.code == "LOCK_UNTRUSTED"
    file.write_bytes(text)
    assert registry.lock().pin("TL-003") is not None
    file.unlink()
    assert registry.lock().pins == ()
