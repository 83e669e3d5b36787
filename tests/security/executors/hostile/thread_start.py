# ends: BLOCKED POLICY_VIOLATION

import _thread


def execute(req):
    return _thread.start_new_thread(lambda: None, ())
