# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import random

    return random.random()
