# ends: BLOCKED POLICY_VIOLATION

TEXT = open("/etc/passwd").read()


def execute(req):
    return "loaded"
