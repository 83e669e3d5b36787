# ends: BLOCKED LIMIT_EXCEEDED


def execute(req):
    return ["x" * 900] * 90
