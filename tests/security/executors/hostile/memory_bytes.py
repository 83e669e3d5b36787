# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    return len(bytearray(10**10))
