# ends: BLOCKED EXECUTOR_TIMEOUT

while True:
    pass


def execute(req):
    return 1
