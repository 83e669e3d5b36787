# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import _sqlite3

    return _sqlite3.sqlite_version
