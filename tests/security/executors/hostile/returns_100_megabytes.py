# ends: BLOCKED LIMIT_EXCEEDED


def execute(req):
    return "x" * 100_000_000
