# ends: BLOCKED LIMIT_EXCEEDED


def execute(req):
    value = []
    for _ in range(100_000):
        value = [value]
    return value
