"""The order of a snippet reads the same however it was put together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actum.errors import ContractInvalid
from actum.execution import snippet
from actum.execution.keyword_types import check_snippet

CODES = ("1", 'print("\\"\\\\")', "é\N{GRINNING FACE}\ud800", "a\nb\t\x00\x7f", "}" * 5_000)


@pytest.mark.parametrize("code", CODES)
def test_an_order_without_params_and_files_is_encoded_as_any_other(code: str) -> None:
    given = snippet.order(code, {"x": 1}, {})
    alone = snippet.order(code, {}, {})
    assert alone == given.replace(b'"params": {"x": 1}', b'"params": {}')
    assert json.loads(alone) == {"code": code, "params": {}, "files": {}}


@pytest.mark.parametrize("name", ["/etc/a", "a/../b", "", "a\0", "./a", "a//b"])
def test_a_file_that_would_not_be_in_the_working_directory_is_refused(name: str) -> None:
    with pytest.raises(ContractInvalid) as refused:
        check_snippet("1", params={}, files={name: b""})
    assert [problem.field for problem in refused.value.problems] == ["files"]
    check_snippet("1", params={}, files={"a/b.txt": b""})


@pytest.mark.parametrize(
    ("given", "kept", "field"),
    [
        ({"stdin": "x"}, False, "stdin"),
        ({"parameters": {}}, False, "parameters"),
        ({"arguments": ()}, True, "arguments"),
        ({"on_output": print}, True, "on_output"),
        ({"wait_s": 1}, True, "wait_s"),
    ],
)
def test_a_keyword_without_a_meaning_for_a_snippet_is_refused(
    given: Any, kept: bool, field: str
) -> None:
    with pytest.raises(ContractInvalid) as refused:
        snippet.require_fit(given, kept=kept)
    assert [problem.field for problem in refused.value.problems] == [field]
    if kept:
        snippet.require_fit({"memory": "64M"}, kept=True)


def test_files_are_not_put_into_a_folder_of_the_host() -> None:
    with pytest.raises(ContractInvalid, match=r"^files: "):
        snippet.require_own_folder("/srv", {"a": b""})
    snippet.require_own_folder("/srv", {})
    snippet.require_own_folder("scratch:", {"a": b""})


@pytest.mark.parametrize("code", ["", " \n\t"])
def test_empty_code_is_refused_by_its_name(code: str) -> None:
    for params in ({}, {"x": 1}):
        with pytest.raises(ContractInvalid) as refused:
            snippet.order(code, params, {})
        assert [problem.field for problem in refused.value.problems] == ["code"]
