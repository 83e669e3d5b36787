"""Removes control sequences other than colour from a tool's output, for a terminal.

Whatever goes in, only four things come out: printable text in UTF-8, newlines, tabs, and complete
colour sequences (SGR: ``ESC [``, digits, ``;`` and ``:``, then ``m``). So nothing moves the cursor,
clears or switches the screen, sets a title, writes the clipboard, asks the terminal to answer, or
writes over a line. This holds by what is emitted, not by how a terminal reads what is removed.

A carriage return becomes a newline: what a progress bar would overwrite stays visible. A sequence
that is not finished at the end of its line is given up there, so it hides nothing after it.

Memory is constant and time is linear. The result does not depend on how the input was cut.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum, auto

#: Text and whole colour sequences. C1 controls (U+0080 to U+009F) are controls in UTF-8 as well.
#: So are bidirectional controls: they change the order in which the rest of a line is shown.
#: Not possessive: Python before 3.11.5 matches too much then (gh-106052).
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_PLAIN = re.compile(rf"(?:[^\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}]+|\x1b\[[0-9;:]{{0,64}}m)+")
_COLOUR_AT_END = re.compile(r"\x1b\[[0-9;:]{0,64}m")
#: What ends, or breaks off, a string such as a title: BEL, CAN, SUB, ESC, ST, the end of the line.
_STRING_END = re.compile(r"[\x07\x18\x1a\x1b\x9c\r\n]")
_CSI = "\x9b"
#: DCS, SOS, OSC, PM and APC, as one character and after ESC.
_STRINGS = "\x90\x98\x9d\x9e\x9f"
_STRING_LETTERS = "PX]^_"
_COLOUR = re.compile(r"[0-9;:]*")
#: Longer colour sequences are removed: all colours of one sequence need less.
_COLOUR_CHARACTERS = 64
_RESET = b"\x1b[0m"


class _State(Enum):
    TEXT = auto()
    RETURN = auto()  #: after a carriage return, which a newline may follow
    ESCAPE = auto()  #: after ESC
    CHARSET = auto()  #: after ESC and an intermediate character
    SEQUENCE = auto()  #: inside a CSI sequence
    STRING = auto()  #: inside a title, a clipboard write, an image


class ScreenFilter:
    """Filters one stream. Feed it the chunks in order, then `finish`."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.TEXT
        self._held = ""  #: parameters of the sequence so far, at most `_COLOUR_CHARACTERS` + 1
        self._coloured = False
        self.ends_in = ""  #: the last character of the last result, colours aside; empty if none
        self.removed = False  #: whether anything but a carriage return was removed

    def feed(self, content: bytes) -> bytes:
        return self._filtered(self._decoder.decode(content))

    def finish(self) -> bytes:
        """The end of the stream. Resets the colours: the next text is not the tool's."""
        rest = self._filtered(self._decoder.decode(b"", final=True))
        if self._state is _State.RETURN:
            rest += b"\n"
            self.ends_in = "\n"
        elif self._state is not _State.TEXT:
            self.removed = True
        self._state = _State.TEXT
        return rest + _RESET if self._coloured else rest

    def _filtered(self, text: str) -> bytes:
        self.ends_in = ""
        out: list[str] = []
        at, end = 0, len(text)
        while at < end:
            match self._state:
                case _State.TEXT:
                    plain = _PLAIN.match(text, at)
                    if plain is not None:
                        self._emit(plain[0], out)
                        at = plain.end()
                    else:
                        self._control(text[at])
                        at += 1
                case _State.RETURN:
                    at += self._after_return(text[at], out)
                case _State.STRING:
                    at = self._string(text, at)
                case _:
                    at += self._sequence(text[at], out)
        return "".join(out).encode()

    def _emit(self, text: str, out: list[str]) -> None:
        out.append(text)
        end = len(text)
        if "\x1b" in text:
            self._coloured = True
            while text.endswith("m", 0, end):
                colour = text.rfind("\x1b", max(0, end - _COLOUR_CHARACTERS - 3), end)
                if colour < 0 or _COLOUR_AT_END.fullmatch(text, colour, end) is None:
                    break
                end = colour
        self.ends_in = text[end - 1 : end] or self.ends_in

    def _control(self, letter: str) -> None:
        """A control character in text. None is passed on."""
        if letter == "\r":
            self._state = _State.RETURN
            return
        if letter == "\x1b":
            self._state = _State.ESCAPE
            return
        self.removed = True
        if letter == _CSI:
            self._begin_sequence("?")  # never colour: it came as a single character
        elif letter in _STRINGS:
            self._state = _State.STRING

    def _after_return(self, letter: str, out: list[str]) -> int:
        """Any number of carriage returns and one newline are one newline."""
        if letter == "\r":
            return 1
        self._state = _State.TEXT
        self._emit("\n", out)
        return 1 if letter == "\n" else 0

    def _begin_sequence(self, held: str = "") -> None:
        self._state = _State.SEQUENCE
        self._held = held

    def _string(self, text: str, at: int) -> int:
        """Skip a string. The character that ends it is read as text, except BEL, CAN, SUB, ST."""
        found = _STRING_END.search(text, at)
        if found is None:
            return len(text)
        self._state = _State.TEXT
        return found.start() if found[0] in "\x1b\r\n" else found.end()

    def _sequence(self, letter: str, out: list[str]) -> int:
        """One character of an escape or CSI sequence; 0: it is not part of one."""
        if letter in "\x1b\r\n" or letter >= "\x7f":
            self._state, self.removed = _State.TEXT, True  # broken off
            return 0
        if letter < " ":
            # A terminal obeys other controls inside a sequence; CAN and SUB end it.
            self.removed = True
            if letter in "\x18\x1a":
                self._state = _State.TEXT
        elif self._state is _State.ESCAPE:
            self._escape(letter)
        elif self._state is _State.CHARSET:
            self._state = _State.CHARSET if letter < "0" else _State.TEXT
        elif letter < "@":
            if len(self._held) <= _COLOUR_CHARACTERS:
                self._held += letter
        else:
            self._state = _State.TEXT
            if letter == "m" and self._is_colour():
                out.append(f"\x1b[{self._held}m")
                self._coloured = True
            else:
                self.removed = True
        return 1

    def _escape(self, letter: str) -> None:
        self._state = _State.TEXT
        if letter == "[":
            self._begin_sequence()
            return
        self.removed = True
        if letter in _STRING_LETTERS:
            self._state = _State.STRING
        elif letter < "0":
            self._state = _State.CHARSET

    def _is_colour(self) -> bool:
        held = self._held
        return len(held) <= _COLOUR_CHARACTERS and _COLOUR.fullmatch(held) is not None
