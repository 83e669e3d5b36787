# ends: BLOCKED SECRET_IN_OUTPUT

import base64


def execute(req):
    return base64.b64encode(req.payload["password"].encode()).decode()
