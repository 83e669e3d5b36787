"""Removes the secrets of one execution from all of its output, while it streams.

Only values that this very execution received are searched for, in the forms of
`capture.secret_encodings`; nothing is guessed, so unrelated text stays unchanged. A stream is
searched with a window: bytes that could begin a secret wait for the next bytes, however the tool
splits its writes. Memory is bounded by the longest form, whatever the tool writes.

Actum stores, shows, digests and counts the text *after* redaction. A digest of the raw stream
would confirm a correct guess of a short secret.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import ahocorasick_rs

from actum.capture.model import Capture, Collected, Connection
from actum.capture.secret_encodings import Form, forms, windows
from actum.contract.canonical import blake3_bytes, sha256_bytes
from actum.value import replace

_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_HEAD = 4  #: bytes of a form by which its beginning is searched


class Redaction:
    """The secrets of one execution. `found` counts how often each was removed, never where."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self._whole: list[Form] = []
        self._names: list[str] = []
        parts: dict[bytes, str] = {}
        for name, value in values.items():
            for form in forms(value):
                self._whole.append(form)
                self._names.append(name)
            parts |= dict.fromkeys(windows(value), name)
        self._window = max(map(len, parts), default=0)
        self._forms = [*self._whole, *map(Form, parts)]
        self._names += parts.values()
        self._automaton = ahocorasick_rs.BytesAhoCorasick([form.text for form in self._forms])
        self._lowered = {value.lower(): name for name, value in values.items()}
        self.found: Counter[str] = Counter()

    def stream(self) -> StreamRedaction:
        return StreamRedaction(self)

    def whole(self, content: bytes) -> bytes:
        """Redact complete content."""
        stream = self.stream()
        return stream.feed(content) + stream.rest()

    def text(self, text: str) -> str:
        """Redact a name that the tool chose; ignores case, because host names lose theirs."""
        redacted = self.whole(text.encode("utf-8", "surrogateescape"))
        for value, name in self._lowered.items():
            if value in redacted.lower():
                self.found[name] += 1
                return marker(name).decode()
        return redacted.decode("utf-8", "surrogateescape")

    def capture(self, capture: Capture) -> Capture:
        """Redact everything but the streams, which were redacted as they came."""
        return replace(
            capture,
            collected=tuple(self._file(item) for item in capture.collected),
            not_collected=tuple(
                replace(item, path=self.text(item.path)) for item in capture.not_collected
            ),
            denials=tuple(replace(item, target=self.text(item.target)) for item in capture.denials),
            connections=tuple(self.connection(item) for item in capture.connections),
        )

    def connection(self, item: Connection) -> Connection:
        return replace(item, host=self.text(item.host))

    def _file(self, item: Collected) -> Collected:
        content = self.whole(item.content)
        return replace(
            item,
            name=self.text(item.name),
            path=self.text(item.path),
            content=content,
            sha256=sha256_bytes(content),
            blake3=blake3_bytes(content),
        )

    # -- for streams ------------------------------------------------------------------------

    def matches(self, content: bytes) -> list[tuple[int, int, str]]:
        """(start, end, name) of what is to be hidden; sorted, adjacent ones merged."""
        hidden: list[tuple[int, int, str]] = []
        for index, start, end in self._automaton.find_matches_as_indexes(content, overlapping=True):
            form = self._forms[index]
            before = form.left and start > 0 and content[start - 1] in _BASE64
            after = form.right and end < len(content) and content[end] in _BASE64
            hidden.append((start - before, end + after, self._names[index]))
        hidden.sort()
        merged: list[tuple[int, int, str]] = []
        for start, end, name in hidden:
            if merged and start <= merged[-1][1]:
                first, last, named = merged[-1]
                merged[-1] = (first, max(last, end), named)
            else:
                merged.append((start, end, name))
        return merged

    def pending(self, content: bytes) -> int:
        """The offset from which `content` may begin an incomplete form."""
        size = len(content)
        earliest = size
        if self._window:
            # No form holds a line end.
            line = content.rfind(b"\n") + 1
            earliest = max(line, size - self._window)
        for form in self._whole:
            at = _beginning(form, content)
            if at < earliest:
                earliest = at
        return earliest


class StreamRedaction:
    """One stream, fed in chunks."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._held = b""
        self._hidden = 0  #: bytes at the start of `_held` that a marker already covers

    def feed(self, data: bytes | memoryview) -> bytes:
        """The bytes that may be released now."""
        content = self._held + bytes(data)
        return self._let(content, self._redaction.pending(content))

    def rest(self) -> bytes:
        """The bytes held back, at the end of the stream."""
        return self._let(self._held, len(self._held))

    def _let(self, content: bytes, until: int) -> bytes:
        out: list[bytes] = []
        position = min(self._hidden, until)
        beyond = self._hidden  #: end of the bytes that are already hidden
        for start, end, name in self._redaction.matches(content):
            if start >= until:
                break
            if end <= beyond:
                continue
            if start > position:
                out.append(content[position:start])
            if start > beyond or beyond == 0:
                # Bytes adjacent to hidden ones continue the same secret.
                out.append(marker(name))
                self._redaction.found[name] += 1
            beyond = end
            position = min(end, until)
        if until > position:
            out.append(content[position:until])
        self._held = content[until:]
        self._hidden = max(0, beyond - until)
        return b"".join(out)


def marker(name: str) -> bytes:
    return f"[redacted:{name}]".encode()


def _beginning(form: Form, content: bytes) -> int:
    """Where the last bytes of `content` begin to spell `form`; its length if they do not."""
    text, size = form.text, len(content)
    first = max(0, size - len(text) + 1)
    if form.right and content.endswith(text):
        return size - len(text) - (1 if form.left and size > len(text) else 0)
    at = first
    while True:
        at = content.find(text[:_HEAD], at)
        if at < 0:
            break
        if text.startswith(content[at:]):
            return max(0, at - 1) if form.left else at
        at += 1
    for at in range(max(first, size - _HEAD + 1), size):
        if text.startswith(content[at:]):
            return max(0, at - 1) if form.left else at
    # The character before a form may be hidden with it, and the form may begin right here.
    return size - 1 if form.left and content and content[-1] in _BASE64 else size
