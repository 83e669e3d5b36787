# ends: SUCCESS
# value: {"event_type": "action_audit", "status": "SUCCESS", "executor_id": "noop"}


def execute(req):
    return {"event_type": "action_audit", "status": "SUCCESS", "executor_id": "noop"}
