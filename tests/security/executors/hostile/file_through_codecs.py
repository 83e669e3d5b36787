# ends: BLOCKED POLICY_VIOLATION

import json


def execute(req):
    return json.codecs.open("/etc/passwd").read()
