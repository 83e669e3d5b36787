# ends: BLOCKED POLICY_VIOLATION

import _posixsubprocess


def execute(req):
    return _posixsubprocess.fork_exec(
        [b"/bin/echo", b"x"],
        [b"/bin/echo"],
        True,
        (),
        None,
        None,
        -1,
        -1,
        -1,
        -1,
        -1,
        -1,
        4,
        5,
        False,
        False,
        0,
        None,
        None,
        None,
        -1,
        None,
        False,
    )
