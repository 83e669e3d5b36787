# ends: SUCCESS
# value: null

import os


def execute(req):
    os.putenv("LEFT_BEHIND", "1")
