# ends: BLOCKED EXECUTOR_CHANGED

ME = None


def execute(req):
    ME().capabilities.append("ROOT")
