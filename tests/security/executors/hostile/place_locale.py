# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import locale

    return locale.getlocale()
