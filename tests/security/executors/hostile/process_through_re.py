# ends: BLOCKED POLICY_VIOLATION

import re


def execute(req):
    return re.enum.sys.modules["os"].system("id")
