"""The forms of a secret in output: itself, and its common encodings.

Not every encoding: a tool that wants to hide a secret from us can (it may reverse, encrypt or
compress it), which is why only an approved tool receives a secret. This module is for accidents
and tools that leak unknowingly: debug output, error texts, tokens in URLs.
"""

from __future__ import annotations

import base64
import html
import json
import urllib.parse
from collections.abc import Iterator

from actum.value import value as frozen

#: From this length on, a line of a multi-line secret is searched for by itself.
_LINE_BYTES = 8
#: Encoders wrap long lines. In longer forms, every window of this many characters is searched for
#: too, so that each line is found wherever it was wrapped.
_UNBROKEN = 56
WINDOW = 24
_WINDOWS_OF_BYTES = 4_096  #: for values up to this length; longer ones have too many
#: For longer values: the line widths of openssl, base64 and xxd.
_BASE64_WIDTHS, _HEX_WIDTHS = (64, 76), (60, 64)

_URL_SAFE = bytes.maketrans(b"+/", b"-_")


@frozen(kw_only=False)
class Form:
    """One encoded form. Adjacent characters that hold bits of the secret are hidden with it."""

    text: bytes
    left: bool = False
    right: bool = False


def forms(value: bytes) -> tuple[Form, ...]:
    """Every form of `value` that is searched for as a whole, each once."""
    found: dict[bytes, Form] = {}
    for form in _forms(value):
        known = found.get(form.text)
        if known is None:
            found[form.text] = form
        elif (form.left, form.right) != (known.left, known.right):
            both = Form(form.text, form.left or known.left, form.right or known.right)
            found[form.text] = both
    return tuple(found.values())


def _forms(value: bytes) -> Iterator[Form]:
    yield Form(value)
    lines = value.split(b"\n")
    if len(lines) > 1:
        yield Form(value.replace(b"\n", b"\r\n"))
        yield from (Form(line) for line in map(bytes.strip, lines) if len(line) >= _LINE_BYTES)
    for start, core, end in _base64_cores(value):
        yield Form(core, start, end)
        yield Form(core.translate(_URL_SAFE), start, end)
    digits = value.hex().encode()
    yield Form(digits)
    yield Form(digits.upper())
    yield from (Form(text) for text in _percent(value))
    yield from (Form(text) for text in _backslashes(value))
    text = _text(value)
    if text is None:
        return
    yield from (Form(escaped.encode()) for escaped in _json(text))
    yield from (Form(escaped.encode()) for escaped in _html(text))
    yield Form(text.replace("'", "'\\''").encode())  # quoted for a shell
    yield Form(text.replace("'", "'\"'\"'").encode())
    yield Form(text.encode("utf-16-le"))
    yield Form(text.encode("utf-16-be"))


def _base64_cores(value: bytes) -> Iterator[tuple[bool, bytes, bool]]:
    """For each offset in a group of three bytes: the characters that encode only the secret."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + value)
        first = (0, 2, 3)[before]
        padding = encoded.count(b"=")
        last = len(encoded) - (padding + 1 if padding else 0)
        core = encoded[first:last]
        if len(core) >= 4:
            yield before > 0, core, padding > 0


def _json(text: str) -> Iterator[str]:
    for escaped in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        inside = escaped[1:-1]
        yield inside
        yield inside.replace("/", "\\/")  # PHP
        yield _unicode_escapes(inside, "<>&", "\\u{:04x}")  # Go, Rails
        yield _unicode_escapes(inside, "<>&='", "\\u{:04x}")  # Gson
    # .NET escapes everything that HTML could misread, and non-ASCII, in upper case.
    plain = json.dumps(text.replace('"', "\0"), ensure_ascii=False)[1:-1].replace("\\u0000", '"')
    beyond = "".join({character for character in text if "\x7f" <= character < "\U00010000"})
    yield _unicode_escapes(plain, "<>&'+`\"" + beyond, "\\u{:04X}")


def _unicode_escapes(text: str, characters: str, escape: str) -> str:
    return text.translate({ord(each): escape.format(ord(each)) for each in characters})


def _html(text: str) -> Iterator[str]:
    plain = html.escape(text, quote=False)
    yield plain
    for double, single in (
        ("&quot;", "&#x27;"),  # Python
        ("&#34;", "&#39;"),  # Go, Jinja
        ("&quot;", "&#39;"),  # most JavaScript
        ("&quot;", "&#039;"),  # PHP
        ("&quot;", "&apos;"),  # XML
        ("&quot;", "'"),
    ):
        yield plain.replace('"', double).replace("'", single)


#: Characters that encoders do not escape: none, a path, Go's PathEscape, JavaScript's
#: encodeURIComponent and encodeURI.
_LEFT = ("", "/", "$&+=:@", "!'()*", "/:@!$&'()*+,;=", "/:@!$&'()*+,;=?#")


def _percent(value: bytes) -> Iterator[bytes]:
    for safe in _LEFT:
        quoted = urllib.parse.quote(value, safe=safe)
        yield quoted.encode()
        yield _lower_escapes(quoted).encode()
    plus = urllib.parse.quote_plus(value)
    yield plus.encode()
    yield _lower_escapes(plus).encode()
    for every in ("%{:02X}", "%{:02x}"):
        yield "".join(every.format(byte) for byte in value).encode()


def _lower_escapes(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])


def _backslashes(value: bytes) -> Iterator[bytes]:
    yield "".join(f"\\x{byte:02x}" for byte in value).encode()
    yield repr(value)[2:-1].encode()


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def windows(value: bytes) -> frozenset[bytes]:
    """Parts of long forms, for wrapped lines. None holds a line end."""
    return frozenset(_windows(value) if len(value) <= _WINDOWS_OF_BYTES else _lines(value))


def _windows(value: bytes) -> Iterator[bytes]:
    for _, core, _ in _base64_cores(value):
        if len(core) > _UNBROKEN:
            yield from _each_window(core, 1)
    digits = value.hex().encode()
    if len(digits) > _UNBROKEN:
        yield from _each_window(digits, 2)
        yield from _each_window(digits.upper(), 2)


def _lines(value: bytes) -> Iterator[bytes]:
    digits = value.hex().encode()
    encoded = [(base64.b64encode(value), _BASE64_WIDTHS)]
    for text, widths in (*encoded, (digits, _HEX_WIDTHS), (digits.upper(), _HEX_WIDTHS)):
        for width in widths:
            lines = (text[start : start + width] for start in range(0, len(text), width))
            yield from (line for line in lines if len(line) >= WINDOW)


def _each_window(text: bytes, step: int) -> Iterator[bytes]:
    for start in range(0, len(text) - WINDOW + 1, step):
        yield text[start : start + WINDOW]
