"""The published schema of receipts, closed: a field that it does not describe is a problem."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema

PUBLISHED = {
    "receipt": "execution-receipt-v1",
    "work-receipt": "work-receipt-v1",
    "run-receipt": "run-receipt-v1",
}
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"


def closed(schema: Any) -> Any:
    """The schema with `additionalProperties: false` wherever it lists properties."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "required" in schema:
        shut.setdefault("additionalProperties", False)
    return shut


def statement_of(envelope: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(envelope["payload"]))


def problems(name: str, statement: Any) -> list[str]:
    schema = json.loads((SCHEMAS / f"{PUBLISHED[name]}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(closed(schema))
    return [f"{each.json_path}: {each.message}" for each in validator.iter_errors(statement)]
