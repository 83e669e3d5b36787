# ends: SUCCESS
# value: {"status": "SUCCESS", "reason_codes": [], "executor_id": "noop", "output_digest": "0000000000000000000000000000000000000000000000000000000000000000"}


def execute(req):
    return {
        "status": "SUCCESS",
        "reason_codes": [],
        "executor_id": "noop",
        "output_digest": "0" * 64,
    }
