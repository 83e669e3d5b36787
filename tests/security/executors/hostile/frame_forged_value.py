# ends: SUCCESS
# value: "forged"

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 8) + b'"forged"')
    os._exit(0)
