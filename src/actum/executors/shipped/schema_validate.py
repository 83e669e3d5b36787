"""Holds a value against a JSON Schema and names every place that does not fit.

Payload: `schema` and `value`. Understood: type, enum, const, properties, required,
additionalProperties, propertyNames, minProperties, maxProperties, items, prefixItems, minItems,
maxItems, uniqueItems, minLength, maxLength, pattern, minimum, maximum, exclusiveMinimum,
exclusiveMaximum, multipleOf, anyOf, allOf, oneOf, not, and $ref into `#/$defs`. A keyword that is
not understood is an error, because a rule that is silently skipped protects nobody.

Output: `{"valid": true|false, "errors": [{"path", "keyword"}]}`. Values are never repeated.
"""

import json
import re
from fractions import Fraction

ANNOTATIONS = {"$schema", "$id", "$defs", "$comment", "title", "description", "default", "examples"}

TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: _is_number(value),
    "integer": lambda value: _is_number(value) and value == int(value),
}


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(left, right):
    # 1 and 1.0 are the same number, 1 and true are not the same thing.
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True) or (
        _is_number(left) and _is_number(right) and left == right
    )


def _typed(value, wanted):
    return any(TYPES[name](value) for name in (wanted if isinstance(wanted, list) else [wanted]))


def _unique(value):
    texts = [json.dumps(item, sort_keys=True) for item in value]
    return len(set(texts)) == len(texts)


def _multiple(value, step):
    return Fraction(str(value)) % Fraction(str(step)) == 0


CHECKS = {
    "type": (None, _typed),
    "enum": (None, lambda value, options: any(_same(value, option) for option in options)),
    "const": (None, _same),
    "required": (dict, lambda value, names: all(name in value for name in names)),
    "minProperties": (dict, lambda value, least: len(value) >= least),
    "maxProperties": (dict, lambda value, most: len(value) <= most),
    "minItems": (list, lambda value, least: len(value) >= least),
    "maxItems": (list, lambda value, most: len(value) <= most),
    "uniqueItems": (list, lambda value, wanted: not wanted or _unique(value)),
    "minLength": (str, lambda value, least: len(value) >= least),
    "maxLength": (str, lambda value, most: len(value) <= most),
    "pattern": (str, lambda value, pattern: re.search(pattern, value) is not None),
    "minimum": (float, lambda value, least: value >= least),
    "maximum": (float, lambda value, most: value <= most),
    "exclusiveMinimum": (float, lambda value, least: value > least),
    "exclusiveMaximum": (float, lambda value, most: value < most),
    "multipleOf": (float, _multiple),
}


def _concerns(kind, value):
    if kind is None:
        return True
    return _is_number(value) if kind is float else isinstance(value, kind)


class _Reader:
    def __init__(self, root):
        self.root = root

    def errors(self, schema, value, path):
        if schema is True:
            return
        if schema is False:
            yield {"path": path, "keyword": "false"}
            return
        for keyword, rule in sorted(schema.items()):
            if keyword in CHECKS:
                kind, fits = CHECKS[keyword]
                if _concerns(kind, value) and not fits(value, rule):
                    yield {"path": path, "keyword": keyword}
            elif keyword in APPLIED:
                yield from APPLIED[keyword](self, schema, rule, value, path)
            elif keyword not in ANNOTATIONS:
                raise ValueError("the schema has a keyword that is not understood")

    def fits(self, schema, value):
        return not any(True for _ in self.errors(schema, value, ""))

    def properties(self, schema, rule, value, path):
        for name in sorted(rule):
            if isinstance(value, dict) and name in value:
                yield from self.errors(rule[name], value[name], f"{path}/{name}")

    def additional(self, schema, rule, value, path):
        known = schema.get("properties", {})
        for name in sorted(value) if isinstance(value, dict) else ():
            if name not in known:
                if rule is False:
                    yield {"path": f"{path}/{name}", "keyword": "additionalProperties"}
                else:
                    yield from self.errors(rule, value[name], f"{path}/{name}")

    def names(self, schema, rule, value, path):
        for name in sorted(value) if isinstance(value, dict) else ():
            if not self.fits(rule, name):
                yield {"path": f"{path}/{name}", "keyword": "propertyNames"}

    def items(self, schema, rule, value, path):
        start = len(schema.get("prefixItems", ()))
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if index >= start:
                yield from self.errors(rule, item, f"{path}/{index}")

    def prefix(self, schema, rule, value, path):
        pairs = zip(rule, value, strict=False) if isinstance(value, list) else ()
        for index, (part, item) in enumerate(pairs):
            yield from self.errors(part, item, f"{path}/{index}")

    def every(self, schema, rule, value, path):
        for part in rule:
            yield from self.errors(part, value, path)

    def some(self, schema, rule, value, path):
        if not any(self.fits(part, value) for part in rule):
            yield {"path": path, "keyword": "anyOf"}

    def one(self, schema, rule, value, path):
        if sum(self.fits(part, value) for part in rule) != 1:
            yield {"path": path, "keyword": "oneOf"}

    def none(self, schema, rule, value, path):
        if self.fits(rule, value):
            yield {"path": path, "keyword": "not"}

    def referred(self, schema, rule, value, path):
        if not rule.startswith("#/$defs/"):
            raise ValueError("a $ref must point into #/$defs")
        yield from self.errors(self.root["$defs"][rule[8:]], value, path)


APPLIED = {
    "properties": _Reader.properties,
    "additionalProperties": _Reader.additional,
    "propertyNames": _Reader.names,
    "items": _Reader.items,
    "prefixItems": _Reader.prefix,
    "allOf": _Reader.every,
    "anyOf": _Reader.some,
    "oneOf": _Reader.one,
    "not": _Reader.none,
    "$ref": _Reader.referred,
}


class SchemaValidate:
    executor_id = "schema_validate"
    version = "1.0.0"
    capabilities = ["SCHEMA_VALIDATION"]
    limits = {
        "timeout_ms": 1000,
        "max_payload_bytes": 1_000_000,
        "max_depth": 30,
        "max_list_items": 1000,
    }
    samples = [
        {
            "payload": {"schema": {"type": "object", "required": ["a"]}, "value": {"a": 1}},
            "output": {"valid": True, "errors": []},
        },
        {
            "payload": {
                "schema": {"properties": {"n": {"type": "integer", "minimum": 2}}},
                "value": {"n": 1},
            },
            "output": {"valid": False, "errors": [{"path": "/n", "keyword": "minimum"}]},
        },
        {
            "payload": {
                "schema": {"items": {"$ref": "#/$defs/t"}, "$defs": {"t": False}},
                "value": [],
            },
            "output": {"valid": True, "errors": []},
        },
    ]

    def execute(self, req):
        schema = req.payload["schema"]
        errors = list(_Reader(schema).errors(schema, req.payload["value"], ""))
        return {"valid": not errors, "errors": errors}
