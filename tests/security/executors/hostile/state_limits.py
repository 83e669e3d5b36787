# ends: BLOCKED EXECUTOR_CHANGED

ME = None


def execute(req):
    ME().limits["timeout_ms"] = 600_000
