# ends: FAILED OUTPUT_INVALID

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 8, 2) + b"{}")
    os._exit(0)
