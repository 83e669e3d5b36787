"""The permissions that a caller of `run_tool` gives: every field of their schema is read."""

from __future__ import annotations

from typing import Any

import pytest

from actum.registry.given_permissions import given_permissions
from actum.registry.load import schema_of

_LIMITS: dict[str, dict[str, Any]] = schema_of("tool")["properties"]["permissions"]["properties"][
    "execution"
]["properties"]


@pytest.mark.parametrize("name", _LIMITS)
def test_a_field_of_the_schema_is_read(name: str) -> None:
    value = _LIMITS[name]["enum"][0] if "enum" in _LIMITS[name] else _LIMITS[name]["minimum"]
    assert given_permissions({"execution": {name: value}}) != given_permissions({})
