# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    return execute(req)
