# ends: FAILED OUTPUT_INVALID


def execute(req):
    return (number for number in range(3))
