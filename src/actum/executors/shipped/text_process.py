"""Changes a text: case, spacing, lines, or its plain ASCII form.

Payload: `text`, and `operation` (default `upper`): upper, lower, title, trim, squeeze, reverse,
lines, normalize, slug or count. An empty text has no output.
"""

import re
import unicodedata


def _slug(text):
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def _count(text):
    return {
        "characters": len(text),
        "words": len(text.split()),
        "lines": len(text.splitlines()),
    }


OPERATIONS = {
    "upper": str.upper,
    "lower": str.lower,
    "title": str.title,
    "trim": str.strip,
    "squeeze": lambda text: " ".join(text.split()),
    "reverse": lambda text: text[::-1],
    "lines": str.splitlines,
    "normalize": lambda text: unicodedata.normalize("NFC", text),
    "slug": _slug,
    "count": _count,
}


class TextProcess:
    executor_id = "text_process"
    version = "1.0.0"
    capabilities = ["TEXT_PROCESSING"]
    limits = {
        "timeout_ms": 1000,
        "max_payload_bytes": 10_000,
        "max_depth": 10,
        "max_list_items": 100,
    }
    samples = [
        {"payload": {"text": "straße"}, "output": "STRASSE"},
        {"payload": {"text": "  a   b ", "operation": "squeeze"}, "output": "a b"},
        {"payload": {"text": "Ünïcode & more", "operation": "slug"}, "output": "unicode-more"},
        {"payload": {"text": ""}, "output": None},
    ]

    def execute(self, req):
        text = req.payload["text"]
        if not isinstance(text, str):
            raise TypeError("text must be text")
        if not text:
            return None
        return OPERATIONS[req.payload.get("operation", "upper")](text)
