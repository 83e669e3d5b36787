# ends: BLOCKED POLICY_VIOLATION

import io


def execute(req):
    return io.FileIO("/etc/passwd").read().decode()
