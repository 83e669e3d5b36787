"""Notes output that resembles a secret not known to Actum. Never changes it.

Guessing by pattern is often wrong, so the output stays unchanged; the note names the kind and
the stream, so that a person can check. It never holds the text itself.
"""

from __future__ import annotations

import re
from functools import cache

from actum.capture.model import Capture

#: Bytes searched of each stream or file; a note is not worth more time.
_SEARCHED_BYTES = 65_536

_KINDS = {
    "api_key": rb"(?i:api[_-]?key)[\"']?\s*[:=]\s*[\"']?[A-Za-z0-9_\-]{16,}",
    "password": rb"(?i:password|passwd|pwd)[\"']?\s*[:=]\s*[\"']?[^\s\"']{8,}",
    "secret": rb"(?i:secret)[\"']?\s*[:=]\s*[\"']?[A-Za-z0-9_\-/+]{16,}",
    "token": rb"(?i:token|bearer)[\"']?\s*[:= ]\s*[\"']?[A-Za-z0-9_\-.]{20,}",
    "private_key": rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----",
    "github_personal": rb"\bghp_[A-Za-z0-9]{36}\b",
    "github_oauth": rb"\bgho_[A-Za-z0-9]{36}\b",
    "gitlab": rb"\bglpat-[A-Za-z0-9_\-]{20}",
    "sk_key": rb"\bsk-[A-Za-z0-9_\-]{20,}",
    "json_web_token": rb"\beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}",
}


def suspected(content: bytes) -> tuple[str, ...]:
    """The kinds of secrets that `content` seems to hold."""
    if len(content) < 16:
        return ()
    searched = content[:_SEARCHED_BYTES]
    return tuple(kind for kind, pattern in _patterns() if pattern.search(searched))


def suspicions(capture: Capture) -> dict[str, list[str]]:
    """Stream or sort of file -> kinds. No file names: a tool chose them."""
    if not (capture.stdout.kept or capture.stderr.kept or capture.collected):
        return {}
    contents = [("stdout", capture.stdout.kept), ("stderr", capture.stderr.kept)]
    contents += [(item.kind, item.content) for item in capture.collected]
    found: dict[str, set[str]] = {}
    for where, content in contents:
        if kinds := suspected(content):
            found.setdefault(where, set()).update(kinds)
    return {where: sorted(kinds) for where, kinds in found.items()}


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[bytes]], ...]:
    return tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS.items())
