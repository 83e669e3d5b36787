# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    return os.memfd_create("x")
