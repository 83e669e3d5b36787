# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    os.execv("/bin/true", ["true"])
