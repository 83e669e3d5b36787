# ends: BLOCKED SECRET_IN_OUTPUT


def execute(req):
    return req.payload["password"].encode().hex()
