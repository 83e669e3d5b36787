# ends: FAILED EXECUTOR_EXCEPTION

import builtins


def execute(req):
    builtins.len = lambda _: 7
    return [len([])]
