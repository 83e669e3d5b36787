"""Rebuilds a JSON value step by step: pick, drop, rename, set, map, filter, sort, flatten, group.

Payload: `value` and `steps`, a list of `{op, ...}`. Paths are written `a.b.0`. A step that does not
fit its value is an error, never a silent no. If nothing is left there is no output.

pick {paths} · drop {paths} · rename {from, to} · set {path, to} · get {path} · map {path} ·
filter {path, equals} · sort {path, descending} · flatten · group {path} · keys · count
"""


def _steps(path):
    return [int(part) if part.isdigit() else part for part in path.split(".")]


def _get(value, path):
    for step in _steps(path):
        if isinstance(value, dict):
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
        else:
            raise LookupError("the path leads nowhere")
    return value


def _put(value, path, item):
    """A copy of `value` with `item` at `path`; mappings on the way are made."""
    first, _, rest = path.partition(".")
    if isinstance(value, list):
        copy = list(value)
        copy[int(first)] = _put(copy[int(first)], rest, item) if rest else item
        return copy
    if not isinstance(value, dict):
        raise TypeError("only mappings and lists have places")
    return {**value, first: _put(value.get(first, {}), rest, item) if rest else item}


def _drop(value, path):
    first, _, rest = path.partition(".")
    if isinstance(value, dict):
        if rest:
            return {**value, first: _drop(value[first], rest)} if first in value else value
        return {key: item for key, item in value.items() if key != first}
    if isinstance(value, list):
        return [_drop(item, path) for item in value]
    raise TypeError("only mappings have fields to drop")


def _pick(value, paths):
    picked = {}
    for path in paths:
        picked = _put(picked, path, _get(value, path))
    return picked


def _each(value):
    if not isinstance(value, list):
        raise TypeError("this step needs a list")
    return value


def _group(value, path):
    groups = {}
    for item in _each(value):
        key = _get(item, path)
        if not isinstance(key, str):
            raise TypeError("groups are named by texts")
        groups[key] = [*groups.get(key, []), item]
    return groups


def _rename(value, old, new):
    moved = _put(value, new, _get(value, old))
    return _drop(moved, old)


OPERATIONS = {
    "pick": lambda value, step: _pick(value, step["paths"]),
    "get": lambda value, step: _get(value, step["path"]),
    "set": lambda value, step: _put(value, step["path"], step["to"]),
    "rename": lambda value, step: _rename(value, step["from"], step["to"]),
    "map": lambda value, step: [_get(item, step["path"]) for item in _each(value)],
    "filter": lambda value, step: [
        item for item in _each(value) if _get(item, step["path"]) == step["equals"]
    ],
    "sort": lambda value, step: sorted(
        _each(value),
        key=lambda item: _get(item, step["path"]) if "path" in step else item,
        reverse=step.get("descending", False),
    ),
    "flatten": lambda value, step: [part for item in _each(value) for part in _each(item)],
    "group": lambda value, step: _group(value, step["path"]),
    "keys": lambda value, step: sorted(value),
    "count": lambda value, step: len(value),
}


def _apply(value, step):
    if step["op"] == "drop":
        for path in step["paths"]:
            value = _drop(value, path)
        return value
    return OPERATIONS[step["op"]](value, step)


class JsonTransform:
    executor_id = "json_transform"
    version = "1.0.0"
    capabilities = ["JSON_TRANSFORM"]
    limits = {
        "timeout_ms": 1000,
        "max_payload_bytes": 1_000_000,
        "max_depth": 20,
        "max_list_items": 1000,
    }
    samples = [
        {
            "payload": {
                "value": {"users": [{"n": "b", "age": 2}, {"n": "a", "age": 2}]},
                "steps": [
                    {"op": "get", "path": "users"},
                    {"op": "filter", "path": "age", "equals": 2},
                    {"op": "map", "path": "n"},
                    {"op": "sort"},
                ],
            },
            "output": ["a", "b"],
        },
        {
            "payload": {
                "value": {"a": {"b": 1}, "c": 2},
                "steps": [
                    {"op": "rename", "from": "a.b", "to": "d"},
                    {"op": "drop", "paths": ["a"]},
                ],
            },
            "output": {"c": 2, "d": 1},
        },
        {"payload": {"value": None, "steps": []}, "output": None},
    ]

    def execute(self, req):
        value = req.payload["value"]
        for step in req.payload["steps"]:
            value = _apply(value, step)
        return value
