# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import dbm

    dbm.open("/tmp/actum-hostile-db", "c")
