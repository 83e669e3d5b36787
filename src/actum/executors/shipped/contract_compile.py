"""Turns a short wish into an execution contract. It writes the contract down; it runs nothing.

This is the bridge between the two planes: whoever gets the output may hand it to a runner, which
checks it like any other contract. Payload: `tool_id` and `command`, and any of `arguments`,
`parameters`, `stdin`, `environment`, `working_directory`, `input_files`, `output_files`,
`artifacts`, `adapter_id`, `timeout_ms`, `memory_mb`, `cpu_cores`, `max_children`, `filesystem`,
`network`, `allow_hosts`, `purpose`, `requested_by`, `determinism`. What is not known here is
refused, and so is a limit out of its range. Without a tool there is no output.
"""

import re

RANGES = {"timeout_ms": (1000, 600_000), "memory_mb": (64, 4096), "cpu_cores": (1, 4)}
LEVELS = {
    "filesystem": ("minimal", "standard", "extended", "elevated"),
    "network": ("offline", "registry", "api", "open"),
}
INPUTS = {
    "command": str,
    "arguments": list,
    "parameters": dict,
    "stdin": str,
    "environment": dict,
    "working_directory": str,
    "input_files": list,
}
OUTPUTS = {"output_files": list, "artifacts": list}
METADATA = {"purpose": str, "requested_by": str}
OTHERS = {"tool_id": str, "adapter_id": str, "determinism": str, "max_children": int}
KINDS = {
    **INPUTS,
    **OUTPUTS,
    **METADATA,
    **OTHERS,
    **dict.fromkeys(RANGES, int),
    **dict.fromkeys(LEVELS, str),
    "allow_hosts": list,
}


def _checked(wish):
    for name, value in wish.items():
        kind = KINDS[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError("a field has the wrong type")
        if name in RANGES and not RANGES[name][0] <= value <= RANGES[name][1]:
            raise ValueError("a limit is out of its range")
        if name in LEVELS and value not in LEVELS[name]:
            raise ValueError("there is no such level")
    if not re.fullmatch(r"[A-Z]{2,4}-[0-9]{3,}", wish["tool_id"]):
        raise ValueError("tool_id is not an id of the registry")
    return wish


def _some(wish, names):
    return {name: wish[name] for name in names if name in wish}


def _sandbox(wish):
    sandbox = _some(wish, RANGES)
    if "filesystem" in wish:
        sandbox["filesystem"] = {"level": wish["filesystem"]}
    if "network" in wish or "allow_hosts" in wish:
        network = {"level": wish["network"]} if "network" in wish else {}
        hosts = {"allow": sorted(wish["allow_hosts"])} if "allow_hosts" in wish else {}
        sandbox["network"] = {**network, **hosts}
    if "max_children" in wish:
        sandbox["processes"] = {"max_children": wish["max_children"]}
    return sandbox


class ContractCompile:
    executor_id = "contract_compile"
    version = "1.0.0"
    capabilities = ["CONTRACT_COMPILE"]
    limits = {
        "timeout_ms": 1000,
        "max_payload_bytes": 1_000_000,
        "max_depth": 10,
        "max_list_items": 1000,
    }
    samples = [
        {
            "payload": {"tool_id": "TL-010", "command": "sh", "stdin": "echo hi", "memory_mb": 64},
            "output": {
                "tool_id": "TL-010",
                "inputs": {"command": "sh", "stdin": "echo hi"},
                "sandbox": {"memory_mb": 64},
            },
        },
        {"payload": {}, "output": None},
    ]

    def execute(self, req):
        if not req.payload:
            return None
        wish = _checked(req.payload)
        contract = {
            **_some(wish, ("tool_id", "adapter_id", "determinism")),
            "inputs": {"command": wish["command"], **_some(wish, INPUTS)},
            "sandbox": _sandbox(wish),
            "outputs": _some(wish, OUTPUTS),
            "metadata": _some(wish, METADATA),
        }
        return {name: value for name, value in contract.items() if value != {}}
