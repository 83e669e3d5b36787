# ends: FAILED EXECUTOR_EXCEPTION

import socket


def execute(req):
    return 1
