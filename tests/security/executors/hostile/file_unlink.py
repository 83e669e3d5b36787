# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    os.unlink("/tmp/actum-hostile-was-here")
