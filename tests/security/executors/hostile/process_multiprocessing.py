# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import multiprocessing

    return multiprocessing.cpu_count()
