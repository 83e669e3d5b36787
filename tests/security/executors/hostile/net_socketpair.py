# ends: BLOCKED POLICY_VIOLATION

import _socket


def execute(req):
    return len(_socket.socketpair())
