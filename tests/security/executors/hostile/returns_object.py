# ends: FAILED OUTPUT_INVALID


def execute(req):
    return object()
