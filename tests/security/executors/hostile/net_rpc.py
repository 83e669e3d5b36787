# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import xmlrpc.client

    return xmlrpc.client.ServerProxy("http://127.0.0.1/").call()
