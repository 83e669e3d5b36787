# ends: BLOCKED POLICY_VIOLATION


def execute(req):
    open("/tmp/actum-hostile-was-here", "w").write("x")
