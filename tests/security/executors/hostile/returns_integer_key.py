# ends: FAILED OUTPUT_INVALID


def execute(req):
    return {1: "a"}
