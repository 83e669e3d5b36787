# ends: FAILED EXECUTOR_EXCEPTION


class Own(BaseException):
    pass


def execute(req):
    raise Own
