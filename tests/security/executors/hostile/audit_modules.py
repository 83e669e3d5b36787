# ends: SUCCESS
# value: []

import sys


def execute(req):
    return [name for name in sys.modules if "actum" in name or "sqlite" in name]
