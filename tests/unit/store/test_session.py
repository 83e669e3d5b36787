"""Raw output: private, gone with its session, and never outside its own directory."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actum.errors import EvidenceUnavailable, Refused
from actum.store.session_streams import SessionStore


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / ".actum")


def test_streams_come_back_exactly(store: SessionStore) -> None:
    store.put("ses-1", "exec-1", b"\x00out\xff", b"")
    assert store.get("ses-1", "exec-1") == (b"\x00out\xff", b"")
    assert store.get("ses-1", "exec-2") is None
    assert store.get("ses-2", "exec-1") is None


def test_a_later_attempt_replaces_an_earlier_one(store: SessionStore) -> None:
    store.put("ses-1", "exec-1", b"a long first answer", b"warning")
    store.put("ses-1", "exec-1", b"second", b"")
    assert store.get("ses-1", "exec-1") == (b"second", b"")


def test_everything_is_private(store: SessionStore) -> None:
    store.put("ses-1", "exec-1", b"out", b"err")
    directory = store.root / "ses-1" / "exec-1"
    for step in (store.root, directory.parent, directory):
        assert stat.S_IMODE(step.stat().st_mode) == 0o700
    for name in ("stdout", "stderr"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600


def test_ending_a_session_removes_all_of_it_and_nothing_else(store: SessionStore) -> None:
    store.put("ses-1", "exec-1", b"out", b"err")
    store.put("ses-2", "exec-1", b"other", b"")
    store.end("ses-1")
    store.end("ses-1")
    assert store.get("ses-1", "exec-1") is None
    assert [path.name for path in store.root.iterdir()] == ["ses-2"]
    assert store.get("ses-2", "exec-1") == (b"other", b"")


HOSTILE = [
    "",
    ".",
    "..",
    "../keys",
    "a/b",
    "/etc",
    ".hidden",
    "-rf",
    "a\x00b",
    "a\n",
    "a" * 129,
    "ä",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leads_out_of_the_session(store: SessionStore, name: str) -> None:
    for attack in (
        lambda: store.put(name, "exec-1", b"", b""),
        lambda: store.put("ses-1", name, b"", b""),
        lambda: store.get(name, "exec-1"),
        lambda: store.end(name),
    ):
        with pytest.raises(Refused) as caught:
            attack()
        assert caught.value.code == "NAME_INVALID"
    assert not store.root.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(name=st.text(max_size=140))
def test_a_name_is_refused_or_stays_one_directory_below_the_root(
    store: SessionStore, name: str
) -> None:
    try:
        directory = store._directory(name, "exec-1")
    except Refused:
        return
    assert directory.resolve().parent.parent == store.root.resolve()


def test_a_planted_link_is_not_written_through(store: SessionStore, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"keep")
    store.put("ses-1", "exec-1", b"", b"")
    planted = store.root / "ses-1" / "exec-1" / "stdout"
    planted.unlink()
    planted.symlink_to(target)
    with pytest.raises(EvidenceUnavailable):
        store.put("ses-1", "exec-1", b"overwritten", b"")
    assert target.read_bytes() == b"keep"
