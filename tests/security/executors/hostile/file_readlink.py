# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    return os.readlink("/proc/self/exe")
