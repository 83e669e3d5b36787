# ends: FAILED OUTPUT_INVALID


def execute(req):
    return float("nan")
