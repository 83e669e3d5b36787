# ends: BLOCKED POLICY_VIOLATION

import datetime


def execute(req):
    return datetime.datetime.now().isoformat()
