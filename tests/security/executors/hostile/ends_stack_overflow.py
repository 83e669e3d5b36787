# ends: FAILED EXECUTOR_EXCEPTION

import sys


def execute(req):
    sys.setrecursionlimit(10**9)
    deep = []
    for _ in range(300_000):
        deep = [deep]
    return repr(deep)
