# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    return os.getrandom(4).hex()
