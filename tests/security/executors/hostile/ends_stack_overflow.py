# ends: FAILED EXECUTOR_EXCEPTION

import sys


def execute(req):
    sys.setrecursionlimit(10**9)
    deep = []
    for _ in range(1_000_000):
        deep = [deep]
    return repr(deep)
