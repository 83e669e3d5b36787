# ends: BLOCKED EXECUTOR_TIMEOUT


def execute(req):
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue
