# ends: BLOCKED POLICY_VIOLATION

import _locale


def execute(req):
    return _locale.setlocale(_locale.LC_ALL, "de_DE.UTF-8")
