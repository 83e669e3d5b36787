# ends: SUCCESS
# value: "hidden"

import os


def execute(req):
    try:
        return os.environ["CANARY"]
    except PermissionError:
        return "hidden"
