# ends: FAILED EXECUTOR_EXCEPTION

import posix


def execute(req):
    return list(posix.environ)
