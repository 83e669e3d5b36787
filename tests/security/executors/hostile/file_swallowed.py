# ends: BLOCKED POLICY_VIOLATION


def execute(req):
    try:
        open("/etc/passwd")
    except BaseException:
        pass
    return "nothing happened"
