# ends: FAILED OUTPUT_INVALID

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 3) + b"NaN")
    os._exit(0)
