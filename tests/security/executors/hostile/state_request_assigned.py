# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    req.action = "other"
