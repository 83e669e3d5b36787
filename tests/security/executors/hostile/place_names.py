# ends: SUCCESS
# value: [[""], [], "", "", []]

import sys


def execute(req):
    return [sys.argv, sys.orig_argv, sys.executable, sys.prefix, sys.path]
