# ends: BLOCKED SECRET_IN_OUTPUT


def execute(req):
    return "it is " + req.payload["password"] + "!"
