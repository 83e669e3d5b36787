# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
