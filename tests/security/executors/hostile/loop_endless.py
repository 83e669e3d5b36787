# ends: BLOCKED EXECUTOR_TIMEOUT


def execute(req):
    while True:
        pass
