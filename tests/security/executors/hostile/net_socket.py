# ends: BLOCKED POLICY_VIOLATION

import _socket


def execute(req):
    return _socket.socket().fileno()
