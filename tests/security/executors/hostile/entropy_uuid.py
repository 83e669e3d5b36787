# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import uuid

    return str(uuid.uuid4())
