# ends: FAILED OUTPUT_INVALID


def execute(req):
    return 2**60
