# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    return os.posix_spawn("/bin/true", ["true"], {})
