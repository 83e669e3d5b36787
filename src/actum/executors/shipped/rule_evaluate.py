"""Judges facts by rules, with strict types: a number is never a text and never a truth value.

Payload: `facts` (a mapping), `rules` (a list of `{name, field, operator, value}`) and `mode` (`all`
or `any`, default `all`). Operators: eq, ne, gt, lt, contains, in. A field may be a path, `a.b.c`.
A rule about a fact that is not there does not match. Without rules there is no output.
"""

MISSING = object()


def _fact(facts, path):
    for step in path.split("."):
        if not isinstance(facts, dict) or step not in facts:
            return MISSING
        facts = facts[step]
    return facts


def _kind(value):
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, (int, float)):
        return "number"
    return type(value).__name__


def _same(left, right):
    return _kind(left) == _kind(right) and left == right


def _ordered(left, right):
    if _kind(left) != _kind(right) or _kind(left) not in ("number", "str"):
        raise TypeError("gt and lt compare two numbers or two texts")
    return (left > right) - (left < right)


def _contains(whole, part):
    if isinstance(whole, str) and isinstance(part, str):
        return part in whole
    if isinstance(whole, list):
        return any(_same(item, part) for item in whole)
    raise TypeError("contains looks into a text or a list")


def _in(value, options):
    if not isinstance(options, list):
        raise TypeError("in needs a list of values")
    return any(_same(value, option) for option in options)


OPERATORS = {
    "eq": _same,
    "ne": lambda left, right: not _same(left, right),
    "gt": lambda left, right: _ordered(left, right) > 0,
    "lt": lambda left, right: _ordered(left, right) < 0,
    "contains": _contains,
    "in": _in,
}
MODES = {"all": all, "any": any}


class RuleEvaluate:
    executor_id = "rule_evaluate"
    version = "1.0.0"
    capabilities = ["RULE_EVALUATION"]
    limits = {
        "timeout_ms": 1000,
        "max_payload_bytes": 10_000,
        "max_depth": 10,
        "max_list_items": 100,
    }
    samples = [
        {
            "payload": {
                "facts": {"age": 20, "who": {"role": "admin"}},
                "rules": [
                    {"name": "adult", "field": "age", "operator": "gt", "value": 17},
                    {"name": "role", "field": "who.role", "operator": "in", "value": ["admin"]},
                ],
            },
            "output": {"matched": True, "rules": {"adult": True, "role": True}},
        },
        {
            "payload": {
                "facts": {"n": 1},
                "rules": [{"name": "strict", "field": "n", "operator": "eq", "value": True}],
            },
            "output": {"matched": False, "rules": {"strict": False}},
        },
        {"payload": {"facts": {}, "rules": []}, "output": None},
    ]

    def execute(self, req):
        facts, rules = req.payload["facts"], req.payload["rules"]
        if not rules:
            return None
        verdicts = {}
        for rule in rules:
            fact = _fact(facts, rule["field"])
            judge = OPERATORS[rule["operator"]]
            verdicts[rule["name"]] = fact is not MISSING and judge(fact, rule["value"])
        matched = MODES[req.payload.get("mode", "all")](verdicts.values())
        return {"matched": matched, "rules": verdicts}
