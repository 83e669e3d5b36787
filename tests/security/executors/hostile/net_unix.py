# ends: BLOCKED POLICY_VIOLATION

import _socket


def execute(req):
    _socket.socket(_socket.AF_UNIX).connect("/run/x")
