# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import urllib.request

    return urllib.request.urlopen("http://127.0.0.1/").read().decode()
