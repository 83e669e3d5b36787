# ends: FAILED EXECUTOR_EXCEPTION

import os


def execute(req):
    return os.environ.get("CANARY", "unset")
