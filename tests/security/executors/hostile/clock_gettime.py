# ends: BLOCKED POLICY_VIOLATION

import time


def execute(req):
    return time.clock_gettime(time.CLOCK_REALTIME)
