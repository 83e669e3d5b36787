# ends: BLOCKED POLICY_VIOLATION

import datetime


def execute(req):
    return datetime.date.today().isoformat()
