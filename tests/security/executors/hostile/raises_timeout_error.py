# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    raise TimeoutError("not yours to say")
