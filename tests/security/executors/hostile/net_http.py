# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import http.client

    http.client.HTTPConnection("127.0.0.1", 80).request("GET", "/")
