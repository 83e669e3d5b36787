# ends: BLOCKED POLICY_VIOLATION


def execute(req):
    return open("/etc/passwd").read()
