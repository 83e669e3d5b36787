# ends: FAILED OUTPUT_INVALID

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 13) + b'{"a":1,"a":2}')
    os._exit(0)
