# ends: FAILED OUTPUT_INVALID

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 4) + b"{\xff}x")
    os._exit(0)
