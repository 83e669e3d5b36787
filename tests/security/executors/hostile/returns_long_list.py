# ends: BLOCKED LIMIT_EXCEEDED


def execute(req):
    return [0] * 101
