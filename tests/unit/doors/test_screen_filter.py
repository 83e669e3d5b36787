"""What a terminal gets of a tool's output: text and colours, however the output is cut."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.doors.cli.screen_filter import ScreenFilter

#: All that may ever come out: no control but newline and tab, and whole colour sequences.
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_HARMLESS = re.compile(rf"(?:[^\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}]|\x1b\[[0-9;:]{{0,64}}m)*")


def screen(*chunks: bytes) -> bytes:
    filtering = ScreenFilter()
    return b"".join([*map(filtering.feed, chunks), filtering.finish()])


#: What a tool writes -> what is shown.
CASES: dict[str, tuple[bytes, bytes]] = {
    "text": ("plain ä€🚀\ttab\n".encode(), "plain ä€🚀\ttab\n".encode()),
    "colour": (b"\x1b[1;31mred\x1b[0m\n", b"\x1b[1;31mred\x1b[0m\n\x1b[0m"),
    "colour with colons": (b"\x1b[38:2::1:2:3mx", b"\x1b[38:2::1:2:3mx\x1b[0m"),
    "colour without numbers": (b"\x1b[mx", b"\x1b[mx\x1b[0m"),
    "hidden text is shown again": (b"\x1b[8mhidden", b"\x1b[8mhidden\x1b[0m"),
    "bidirectional controls": (f"a{_BIDI}b\x1b[3\u202e1mc".encode(), b"ab1mc"),
    "private m": (b"a\x1b[>4;2mb\x1b[?4mc\x1b[<md\x1b[=me", b"abcde"),
    "m after an intermediate": (b"a\x1b[1 mb\x1b[1$mc", b"abc"),
    "title": (b"\x1b]0;evil\x07text\n", b"text\n"),
    "title ended by ST": (b"\x1b]2;evil\x1b\\text\n", b"text\n"),
    "clipboard": (b"\x1b]52;c;cm0gLXJmIH4=\x07x", b"x"),
    "link": (b"\x1b]8;;http://e.example\x1b\\text\x1b]8;;\x1b\\", b"text"),
    "device control, message, application": (b"\x1bPq#0\x1b\\a\x1b^m\x1b\\b\x1b_Gx\x1b\\c", b"abc"),
    "start of string": (b"\x1bXhidden\x1b\\a", b"a"),
    "bell does not matter in a device control string": (b"\x1bPa\x07b\n", b"b\n"),
    "cursor up and clear": (b"one\n\x1b[1A\x1b[2Ktwo\x1b[H\x1b[2J\x1b[3J", b"one\ntwo"),
    "alternate screen": (b"\x1b[?1049hx\x1b[?1049l", b"x"),
    "bracketed paste and mouse": (b"\x1b[?2004h\x1b[?1000h\x1b[200~x", b"x"),
    "questions that a terminal answers": (b"\x1b[6n\x1b[c\x1b[>c\x1b[?1$p\x05\x1bZ\x1b[21tx", b"x"),
    "scroll region, save, restore, reset": (b"\x1b[1;3r\x1b7\x1b8\x1bc\x1bM\x1bD\x1bEx", b"x"),
    "character sets": (b"\x1b(0\x1b)B\x1b%@\x1b#8x\x0e\x0fy\x1b $)z", b"xy"),
    "soft reset": (b"\x1b[!p\x1b[0 qx", b"x"),
    "carriage return": (b"10%\r20%\r30%\n", b"10%\n20%\n30%\n"),
    "line ends of other systems": (b"a\r\nb\r\r\nc", b"a\nb\nc"),
    "carriage return at the end": (b"a\r", b"a\n"),
    "forged by return": (b"tool\ractum: SUCCEEDED", b"tool\nactum: SUCCEEDED"),
    "backspace, bell, nul, delete": (b"a\x08b\x07c\x00d\x7fe\x0bf\x0cg", b"abcdefg"),
    "C1 in UTF-8": (b"a\xc2\x9b2Jb\xc2\x9d0;t\x07c\xc2\x90q\xc2\x9cd\xc2\x85e\xc2\x84f", b"abcdef"),
    "C1 colour in UTF-8 is no colour": (b"\xc2\x9b31mred", b"red"),
    "C1 as bytes": (b"a\x9b2Jb\x9d0;t\x07", b"a\xef\xbf\xbd2Jb\xef\xbf\xbd0;t"),
    "other bytes that are no text": (b"a\xffb\xc0\xafc\xed\xa0\x80d", "a�b��c���d".encode()),
    "half a character at the end": (b"a\xe2\x82", b"a\xef\xbf\xbd"),
    "half a character before a control": (b"a\xe2\x82\x1b[2Jb", b"a\xef\xbf\xbdb"),
    "title without an end": (b"\x1b]0;evil\nnext line\n", b"\nnext line\n"),
    "title without an end, at the end": (b"text\x1b]0;evil", b"text"),
    "device control without an end": (b"\x1bPevil\r\nnext\n", b"\nnext\n"),
    "sequence broken off by a newline": (b"a\x1b[1;2\nb", b"a\nb"),
    "sequence broken off by another": (b"\x1b[1;\x1b[31mred", b"\x1b[31mred\x1b[0m"),
    "escape twice": (b"\x1b\x1b[2Jx\x1b\x1b\x1b[31my", b"x\x1b[31my\x1b[0m"),
    "cancelled": (b"\x1b[31\x18mx\x1b]0;t\x1ay", b"mxy"),
    "controls inside a sequence": (b"\x1b[3\x071mx", b"\x1b[31mx\x1b[0m"),
    "a letter beyond ASCII inside a sequence": ("\x1b[3äx\x1bä".encode(), "äxä".encode()),
    "escape at the end": (b"a\x1b", b"a"),
    "sequence at the end": (b"a\x1b[31", b"a"),
    "a colour of too many numbers": (b"\x1b[" + b"1;" * 40 + b"mx", b"x"),
    "the longest colour": (b"\x1b[" + b"1" * 64 + b"mx", b"\x1b[" + b"1" * 64 + b"mx\x1b[0m"),
    "a longer one": (b"\x1b[" + b"1" * 65 + b"mx", b"x"),
    "nothing": (b"", b""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_at_every_cut(name: str) -> None:
    written, shown = CASES[name]
    assert screen(written) == shown
    for at in range(len(written) + 1):
        assert screen(written[:at], written[at:]) == shown, at
    assert screen(*(bytes([byte]) for byte in written)) == shown
    if len(written) < 60:
        for first in range(len(written)):
            for second in range(first, len(written)):
                assert screen(written[:first], written[first:second], written[second:]) == shown


_BYTES = st.lists(
    st.one_of(
        st.sampled_from([b"\x1b", b"[", b"]", b"m", b";", b"\r", b"\n", b"\x9b", b"\xc2", b"\x9c"]),
        st.sampled_from([b"\x1b[31m", b"\x1b]0;", b"\x1b\\", b"\x07", b"\x1bP", b"\xc2\x9d", b"?"]),
        st.binary(max_size=4),
        st.text(max_size=4).map(str.encode),
    ),
    max_size=30,
)


@given(_BYTES)
def test_whatever_goes_in_nothing_else_comes_out(chunks: list[bytes]) -> None:
    shown = screen(*chunks)
    assert _HARMLESS.fullmatch(shown.decode()) is not None  # strictly UTF-8
    assert shown == screen(b"".join(chunks))
    assert b"\x1b" not in shown or shown.endswith(b"\x1b[0m")


@given(
    st.text(
        st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters=_BIDI), max_size=200
    )
)
def test_text_passes_unchanged(text: str) -> None:
    assert screen(text.encode()) == text.encode()


@pytest.mark.parametrize("start", [b"\x1b[", b"\x1b]", b"\x1b", b"\x1bP", b"\x1b(", b"\xe2\x82"])
def test_memory_does_not_grow_with_what_is_removed(start: bytes) -> None:
    filtering = ScreenFilter()
    filtering.feed(start)
    for _ in range(50):
        assert filtering.feed(b"1" * 65_536) is not None
    assert len(filtering._held) <= 65
    assert sys.getsizeof(filtering._decoder.getstate()[0]) < 100


@pytest.mark.parametrize(
    ("written", "removed"),
    [
        *[(b"text\n", False), (b"\x1b[31mred\x1b[0m", False), (b"a\r\nb\rc", False)],
        *[(b"\x1b]0;t\x07", True), (b"\x1b[2J", True), (b"\x1b", True), (b"\x07", True)],
        ("\u202e".encode(), True),
        *[(b"\xc2\x9b1m", True), (b"\x1bc", True), (b"\x1b[31", True), (b"\x1b[>4m", True)],
    ],
)
def test_it_says_whether_it_removed_something(written: bytes, removed: bool) -> None:
    filtering = ScreenFilter()
    filtering.feed(written)
    filtering.finish()
    assert filtering.removed is removed


def test_it_says_how_its_text_ended() -> None:
    filtering = ScreenFilter()
    for written, ends_in in ((b"ab", "b"), (b"\x1b[0m", ""), (b"c\n\x1b[0m", "\n"), (b"d\r", "d")):
        filtering.feed(written)
        assert filtering.ends_in == ends_in
    assert filtering.finish() == b"\n\x1b[0m"
    assert filtering.ends_in == "\n"
