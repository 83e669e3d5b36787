# ends: FAILED EXECUTOR_EXCEPTION

import os


def execute(req):
    return os.read(3, 1).hex()
