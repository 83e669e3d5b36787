# ends: SUCCESS
# value: "one"

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 5) + b'"one"')
    while True:
        pass
