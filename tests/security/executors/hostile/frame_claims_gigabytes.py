# ends: BLOCKED LIMIT_EXCEEDED

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 0xFFFFFFFF))
