"""Does nothing and returns nothing: the smallest executor, and a probe for everything around it."""


class Noop:
    executor_id = "noop"
    version = "1.0.0"
    capabilities = []
    limits = {
        "timeout_ms": 1000,
        "max_payload_bytes": 10_000,
        "max_depth": 10,
        "max_list_items": 100,
    }
    samples = [
        {"payload": {}, "output": None},
        {"payload": {"anything": [1, 2, {"at": "all"}]}, "output": None},
    ]

    def execute(self, req):
        return None
