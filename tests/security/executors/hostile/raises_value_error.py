# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    raise ValueError(req.payload["text"])
