# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import secrets

    return secrets.token_hex()
