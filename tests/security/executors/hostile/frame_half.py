# ends: FAILED EXECUTOR_EXCEPTION

import os
import struct


def execute(req):
    os.write(0, struct.pack("!BI", 1, 50) + b'"half')
    os._exit(0)
