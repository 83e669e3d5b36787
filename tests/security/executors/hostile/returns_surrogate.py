# ends: FAILED OUTPUT_INVALID


def execute(req):
    return "\ud800"
