# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    raise SystemExit(0)
