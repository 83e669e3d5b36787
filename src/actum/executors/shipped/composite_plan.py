"""Reads a plan of several actions and puts it in order; the pipeline then carries it out.

Payload: `steps`, each `{name, action, payload, merge, under}`; `input`, what the first step starts
from; `max_steps` (1 to 8) and `max_total_payload_bytes` (up to 65,536). `merge` says what becomes
of a step's output: `replace` (default) makes it the next step's input, `merge_under` puts it under
a name, `append_results` collects it in `results`. A plan without steps has no output.
"""

import re

MOST_STEPS = 8
MOST_BYTES = 65_536
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
MERGES = ("replace", "merge_under", "append_results")
PLAN_KEYS = {"steps", "input", "max_steps", "max_total_payload_bytes"}
STEP_KEYS = {"name", "action", "payload", "merge", "under"}


def _bounded(value, most):
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError("a bound of the plan is out of its range")
    return value


def _mapping(value):
    if not isinstance(value, dict):
        raise TypeError("input and payload are mappings")
    return value


def _step(step):
    if not set(step) <= STEP_KEYS:
        raise ValueError("a step has a field that is not known")
    name, merge = step["name"], step.get("merge", "replace")
    if not NAME.fullmatch(name) or merge not in MERGES:
        raise ValueError("a step has no proper name or way to merge")
    if not isinstance(step["action"], str):
        raise TypeError("a step names its action")
    return {
        "name": name,
        "action": step["action"],
        "payload": _mapping(step.get("payload", {})),
        "merge": merge,
        "under": step.get("under", name),
    }


class CompositePlan:
    executor_id = "composite_plan"
    version = "1.0.0"
    capabilities = ["PLANNING"]
    limits = {
        "timeout_ms": 5000,
        "max_payload_bytes": 10_000_000,
        "max_depth": 20,
        "max_list_items": 1000,
    }
    samples = [
        {
            "payload": {"steps": [{"name": "shout", "action": "process"}], "input": {"text": "a"}},
            "output": {
                "input": {"text": "a"},
                "max_total_payload_bytes": 65_536,
                "steps": [
                    {
                        "name": "shout",
                        "action": "process",
                        "payload": {},
                        "merge": "replace",
                        "under": "shout",
                    }
                ],
            },
        },
        {"payload": {"steps": []}, "output": None},
    ]

    def execute(self, req):
        plan = req.payload
        if not set(plan) <= PLAN_KEYS:
            raise ValueError("the plan has a field that is not known")
        steps = [_step(step) for step in plan["steps"]]
        if len(steps) > _bounded(plan.get("max_steps", MOST_STEPS), MOST_STEPS):
            raise ValueError("the plan has more steps than it may have")
        if len({step["name"] for step in steps}) != len(steps):
            raise ValueError("two steps have the same name")
        if not steps:
            return None
        most = _bounded(plan.get("max_total_payload_bytes", MOST_BYTES), MOST_BYTES)
        return {
            "input": _mapping(plan.get("input", {})),
            "max_total_payload_bytes": most,
            "steps": steps,
        }
