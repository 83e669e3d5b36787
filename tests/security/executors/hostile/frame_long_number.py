# ends: FAILED OUTPUT_INVALID

import os
import struct


def execute(req):
    text = b"9" * 9_000
    os.write(0, struct.pack("!BI", 1, len(text)) + text)
    os._exit(0)
