# ends: FAILED EXECUTOR_EXCEPTION

raise ImportError("no")


def execute(req):
    return 1
