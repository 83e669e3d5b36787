"""Names for executions, receipts and traces: random UUIDs (RFC 9562, version 4) as text.

The standard `uuid` module reads the platform to do more than this, at every start.
"""

from __future__ import annotations

import os


def new_id() -> str:
    random = bytearray(os.urandom(16))
    random[6] = random[6] & 0x0F | 0x40
    random[8] = random[8] & 0x3F | 0x80
    text = random.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
