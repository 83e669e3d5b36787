# ends: BLOCKED EXECUTOR_CHANGED

ME = None


def execute(req):
    type(ME()).executor_id = "noop"
