"""A folder kept as bytes is the folder: whatever is changed in it, it is what a plain dict gives.

The judge knows the definition of the hash and nothing of how folders are kept.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from actum.workspace.index import Index
from actum.workspace.packed import UNKNOWN, Packed
from actum.workspace.tree import Entry, Kind, line_of

NAME = st.one_of(
    st.sampled_from((b"a", b"aa", b"b", b"1:a", b"\xff", b"\n", b"n" * 255, b"x" * 99, b"x" * 100)),
    st.binary(min_size=1, max_size=12).filter(lambda name: not {0, ord("/")} & set(name)),
)
ENTRY = st.builds(
    Entry,
    st.sampled_from(list(Kind)),
    st.sampled_from((0, 0o7, 0o44, 0o644, 0o777)),
    # Digests that look like lines of their own: nothing may be found inside of them.
    st.one_of(st.binary(min_size=32, max_size=32), st.just((b"1:af644:" * 5)[:32])),
)
ENTRIES = st.dictionaries(NAME, ENTRY, max_size=12)
CHANGES = st.dictionaries(NAME, st.one_of(st.none(), ENTRY), max_size=12)


def _packed(entries: dict[bytes, Entry]) -> Packed:
    return Packed.of(
        (name, line_of(name, entries[name]), bytes([number % 255 + 1]) * 64)
        for number, name in enumerate(sorted(entries))
    )


def _digest(entries: dict[bytes, Entry]) -> bytes:
    parts = b"".join(
        b"%d:%b%b%o:%b"
        % (len(name), name, entries[name].kind.value.encode(), entries[name].mode, digest)
        for name, digest in sorted((name, entry.digest) for name, entry in entries.items())
    )
    return blake3(b"actum-state-v1\n" + parts).digest()


@pytest.mark.req("002-22")
@given(ENTRIES, CHANGES)
def test_a_patched_folder_is_the_folder_made_anew(
    entries: dict[bytes, Entry], changes: dict[bytes, Entry | None]
) -> None:
    before = _packed(entries)
    after = before.patched(changes)
    wanted = {name: entry for name, entry in {**entries, **changes}.items() if entry is not None}
    assert dict(after.items()) == wanted
    assert list(after) == sorted(wanted)
    assert all(after.get(name) == entry for name, entry in wanted.items())
    assert all(after.get(name) is None for name in {*entries, *changes} - wanted.keys())
    assert after.digest == _digest(wanted)
    old = {name: stamp for name, _line, stamp in before.rows()}
    for name, _line, stamp in after.rows():
        kept = name not in changes or wanted[name].kind is Kind.FOLDER
        assert stamp == (old.get(name, UNKNOWN) if kept else UNKNOWN)


@pytest.mark.req("002-22")
def test_the_state_of_a_tree_on_a_disk_is_what_its_definition_says(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "wide").mkdir(parents=True)
    for number in range(300):
        (base / "wide" / f"f{number}").write_text(str(number))
    os.symlink("a", base / "link")
    (base / "wide" / "f7").chmod(0o44)
    (base / "empty").mkdir(mode=0o700)
    os.mkfifo(base / "pipe", 0o600)
    base.chmod(0o750)

    def told(folder: Path) -> bytes:
        entries = {}
        for path in folder.iterdir():
            mode = path.lstat().st_mode & 0o777
            if path.is_symlink():
                content = blake3(os.fsencode(os.readlink(path))).digest()
                entry = Entry(Kind.LINK, mode, content)
            elif path.is_dir():
                entry = Entry(Kind.FOLDER, mode, told(path))
            elif path.is_file():
                entry = Entry(Kind.FILE, mode, blake3(path.read_bytes()).digest())
            else:
                entry = Entry(Kind.OTHER, mode, blake3(b"").digest())
            entries[os.fsencode(path.name)] = entry
        return _digest(entries)

    wanted = blake3(b"actum-state-v1\n750:" + told(base)).hexdigest()
    assert Index(tmp_path / "index").scan(base).state.hash == wanted
