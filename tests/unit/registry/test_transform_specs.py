"""A spec that cannot work is found when the adapter is loaded, with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum.errors import ContractInvalid
from actum.registry import ship, transforms
from actum.registry.load import load_adapters

SHIPPED = Path(ship.__file__).parent / "shipped"
GOOD: list[tuple[str, str, Any]] = [
    ("input", "rename", {"a": "b"}),
    ("input", "map", {"a": {"x": 1}}),
    ("input", "default", {"a": None}),
    ("input", "validate", "json_schema"),
    ("input", "validate", {"type": "object", "required": ["a"]}),
    ("output", "parse", "csv"),
    ("output", "extract", "$.data[?@.n > 1]['é']"),
    ("output", "format", "{a} {$.b[0]} {{}}"),
]
BAD: list[tuple[str, str, Any, str]] = [
    ("input", "rename", {"a": ""}, "new name"),
    ("input", "rename", {"a": "c", "b": "c"}, "two parameters"),
    ("input", "rename", [], "mapping"),
    ("input", "map", {"a": "b"}, "table"),
    ("input", "map", {}, "table"),
    ("input", "default", "a", "mapping"),
    ("input", "validate", "other", "json_schema"),
    ("input", "validate", {"type": "no such type"}, "validate"),
    ("input", "validate", {"$ref": "file:///etc/hostname"}, "validate"),
    ("output", "parse", "xml", "one of json"),
    ("output", "parse", ["json"], "one of json"),
    ("output", "extract", "data", "starts with"),
    ("output", "extract", "$.[", "not a JSONPath"),
    ("output", "extract", "$[?length(@.a, 1)]", "not a JSONPath"),
    ("output", "format", "", "template"),
    ("output", "format", "{a", "lone {"),
    ("output", "format", "a}", "lone }"),
    ("output", "format", "{a.b}", "not a placeholder"),
    ("output", "format", "{$.a[*]}", "not a placeholder"),
    ("output", "format", "{0}", "not a placeholder"),
]


def written(folder: Path, side: str, kind: str, spec: Any) -> Path:
    """A copy of the shipped ripgrep with one more transform."""
    copy = folder / "ripgrep"
    (copy / "adapters").mkdir(parents=True)
    (copy / "tool.yaml").write_bytes((SHIPPED / "ripgrep/tool.yaml").read_bytes())
    adapter = yaml.safe_load((SHIPPED / "ripgrep/adapters/ripgrep-search.yaml").read_text())
    adapter["transforms"][side].append({"type": kind, "spec": spec})
    (copy / "adapters/adapter.yaml").write_text(yaml.safe_dump(adapter))
    return copy


@pytest.mark.parametrize("side", ["input", "output"])
def test_each_type_of_the_schema_has_a_check_and_specs_here(side: str) -> None:
    schema = json.loads((SHIPPED.parent / "schemas/adapter.json").read_text())
    items = schema["properties"]["transforms"]["properties"][side]["items"]
    types = set(items["properties"]["type"]["enum"])
    assert types <= set(transforms._CHECKS)
    assert types == {kind for where, kind, _ in GOOD if where == side}
    assert types == {kind for where, kind, _, _ in BAD if where == side}


@pytest.mark.req("000-110", "000-112")
@pytest.mark.parametrize(("side", "kind", "spec"), GOOD)
def test_a_spec_that_can_work_is_loaded_as_it_is_written(
    tmp_path: Path, side: str, kind: str, spec: Any
) -> None:
    (adapter,) = load_adapters(written(tmp_path, side, kind, spec))
    found = adapter.input_transforms if side == "input" else adapter.output_transforms
    assert (found[-1].type, found[-1].spec) == (kind, spec)


@pytest.mark.req("000-111", "000-113")
@pytest.mark.parametrize(("side", "kind", "spec", "says"), BAD)
def test_a_spec_that_cannot_is_refused_with_its_place(
    tmp_path: Path, side: str, kind: str, spec: Any, says: str
) -> None:
    with pytest.raises(ContractInvalid) as invalid:
        load_adapters(written(tmp_path, side, kind, spec))
    (problem,) = invalid.value.problems
    assert says in problem.message
    assert problem.field.startswith(f"transforms.{side}[")
    assert problem.line


@pytest.mark.req("000-110", "000-112")
@pytest.mark.parametrize(("side", "kind"), [("input", "parse"), ("output", "rename")])
def test_a_type_of_the_other_side_is_refused(tmp_path: Path, side: str, kind: str) -> None:
    with pytest.raises(ContractInvalid, match=side):
        load_adapters(written(tmp_path, side, kind, {"a": "b"}))


def test_a_program_says_text_so_something_must_parse_it(tmp_path: Path) -> None:
    folder = written(tmp_path, "output", "extract", "$.a")
    file = folder / "adapters/adapter.yaml"
    adapter = yaml.safe_load(file.read_text())
    del adapter["transforms"]["output"][0]
    file.write_text(yaml.safe_dump(adapter))
    with pytest.raises(ContractInvalid, match="put a parse before it"):
        load_adapters(folder)
