# ends: BLOCKED LIMIT_EXCEEDED

import os
import struct


def execute(req):
    while True:
        os.write(0, b"x" * 65_536)
