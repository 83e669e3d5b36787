# ends: BLOCKED LIMIT_EXCEEDED

import os
import struct


def execute(req):
    text = b"[" * 20_000 + b"]" * 20_000
    os.write(0, struct.pack("!BI", 1, len(text)) + text)
    os._exit(0)
