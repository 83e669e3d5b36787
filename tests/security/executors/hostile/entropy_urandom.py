# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    return os.urandom(4).hex()
