# ends: BLOCKED POLICY_VIOLATION

import _signal


def execute(req):
    _signal.alarm(1)
