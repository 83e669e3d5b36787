# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    kept = []
    while True:
        kept.append(bytearray(1 << 20))
