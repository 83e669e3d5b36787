# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    raise BaseExceptionGroup("all", [KeyboardInterrupt(), SystemExit()])
