# ends: FAILED EXECUTOR_EXCEPTION

import os


def execute(req):
    os._exit(0)
