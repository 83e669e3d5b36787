"""The protocol of a connection, by the first bytes that its client sends.

Tells TLS, HTTP and SSH apart, so that the class `https` of a tool is no permission for any other
protocol on the same port. Reads the opening only: what a client and a server that agree say
afterwards is not judged.
"""

from __future__ import annotations

import re

HTTP, HTTPS, SSH, UNKNOWN = "http", "https", "ssh", "unknown"

#: The longest opening: a request line of HTTP. Servers accept about half of it.
OPENING_BYTES = 16_384

_TLS_BYTES = 11
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(_TOKEN + rb"{1,32} [\x21-\xff]+ HTTP/(1\.[01]|2\.0)\r?\n")
_BEGUN_LINE = re.compile(_TOKEN + rb"{1,32}( [\x20-\xff]*\r?)?")


def protocol_of(opening: bytes) -> str | None:
    """The protocol that begins with `opening`; ``None`` until there are enough bytes to tell."""
    if opening[:1] == b"\x16":
        return _tls(opening)
    if opening[:4] == b"SSH-":
        return SSH
    if b"\n" in opening:
        return HTTP if _REQUEST_LINE.match(opening) else UNKNOWN
    if len(opening) >= OPENING_BYTES or not _BEGUN_LINE.fullmatch(opening):
        return UNKNOWN
    return None


def _tls(opening: bytes) -> str | None:
    """A record of type handshake (RFC 8446, 5.1) with a ClientHello (4.1.2)."""
    if len(opening) < _TLS_BYTES:
        return None
    record = opening[1] == 3 and opening[2] <= 4
    hello = opening[5] == 1 and opening[9] == 3
    return HTTPS if record and hello else UNKNOWN
