# ends: FAILED OUTPUT_INVALID


def execute(req):
    loop = []
    loop.append(loop)
    return loop
