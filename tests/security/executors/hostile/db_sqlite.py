# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import sqlite3

    return sqlite3.connect(":memory:").execute("select 1").fetchone()
