# ends: FAILED EXECUTOR_EXCEPTION

import time


def execute(req):
    return time.monotonic()
