# ends: BLOCKED POLICY_VIOLATION

import _signal


def execute(req):
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
