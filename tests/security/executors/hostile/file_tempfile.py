# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import tempfile

    return tempfile.mkdtemp()
