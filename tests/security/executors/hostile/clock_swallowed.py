# ends: BLOCKED POLICY_VIOLATION

import time


def execute(req):
    try:
        return time.time()
    except BaseException:
        return 0
