# ends: BLOCKED EXECUTOR_TIMEOUT

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 50) + b'"half')
    while True:
        pass
