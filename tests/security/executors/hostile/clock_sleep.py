# ends: FAILED EXECUTOR_EXCEPTION

import time


def execute(req):
    time.sleep(0.001)
