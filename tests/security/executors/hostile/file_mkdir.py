# ends: BLOCKED POLICY_VIOLATION

import os


def execute(req):
    os.mkdir("/tmp/actum-hostile-dir")
