# ends: SUCCESS
# value: 0

import re


def execute(req):
    found = getattr(re, "left_behind", 0)
    re.left_behind = found + 1
    return found
