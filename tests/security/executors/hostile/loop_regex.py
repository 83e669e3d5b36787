# ends: BLOCKED EXECUTOR_TIMEOUT

import re


def execute(req):
    return bool(re.match(r"(a+)+$", "a" * 60 + "b"))
