# ends: BLOCKED POLICY_VIOLATION

import _random


def execute(req):
    return _random.Random().random()
