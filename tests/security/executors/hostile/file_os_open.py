# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    return os.open("/etc/passwd", 0)
