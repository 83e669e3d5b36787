# ends: SUCCESS
# value: {"status": "FAILED", "reason_codes": ["EXECUTOR_EXCEPTION"]}


def execute(req):
    return {"status": "FAILED", "reason_codes": ["EXECUTOR_EXCEPTION"]}
