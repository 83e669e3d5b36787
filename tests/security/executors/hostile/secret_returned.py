# ends: BLOCKED SECRET_IN_OUTPUT


def execute(req):
    return {"kept": req.payload["password"]}
