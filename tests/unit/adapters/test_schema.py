from __future__ import annotations

from actum.adapters.args_schema import Marks, marks_of


def test_marks_come_from_the_property_or_its_items() -> None:
    schema = {
        "properties": {
            "a": {"x-actum": "literal"},
            "b": {"type": "array", "items": {"x-actum": "path"}},
            "c": {"x-actum": ["path", "literal"]},
            "d": {},
        }
    }
    assert [marks_of(schema, name) for name in "abcde"] == [
        Marks(literal=True),
        Marks(path=True),
        Marks(literal=True, path=True),
        Marks(),
        Marks(),
    ]
