# ends: BLOCKED POLICY_VIOLATION

import time


def execute(req):
    return time.time()
