# ends: BLOCKED EXECUTOR_TIMEOUT

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 60_000) + b'"')
    while True:
        # Always something new to read: a deadline that starts again with every part never comes.
        os.write(0, b"x")
        for _ in range(400):
            pass
