# ends: BLOCKED EXECUTOR_CHANGED

ME = None


def execute(req):
    ME().version = "9.9.9"
