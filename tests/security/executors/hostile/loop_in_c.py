# ends: BLOCKED EXECUTOR_TIMEOUT


def execute(req):
    return len(str(7 ** (10**8)))
