# ends: BLOCKED EXECUTOR_TIMEOUT

import os


def execute(req):
    for byte in b"\x01\x00\x00":
        os.write(0, bytes([byte]))
        for _ in range(500_000):
            pass
    while True:
        pass
