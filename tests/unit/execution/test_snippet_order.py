"""The order of a snippet reads the same however it was put together."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from actum.contract import snippet_order
from actum.contract.limits import INPUT_FILES_BYTES
from actum.errors import ContractInvalid
from actum.execution import snippet
from actum.execution.keyword_types import check_snippet
from actum.sandbox import root, snippet_program

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


def test_large_files_follow_the_order_and_too_large_ones_are_only_declared() -> None:
    for size in (65_536, 65_537, INPUT_FILES_BYTES, INPUT_FILES_BYTES + 1):
        content = bytes(size - 1)
        order = snippet.order("1", {"x": 1}, {"a": content, "b/c": "y"})
        head, attached = snippet_order.sizes(order)
        assert attached == (size if size > 65_536 else 0)
        assert (len(order) > size) == (size <= INPUT_FILES_BYTES)
        if size <= INPUT_FILES_BYTES:
            read = snippet_program.read_order(order)
            files = {
                name: base64.b64decode(each) if isinstance(each, str) else bytes(each)
                for name, each in read["files"].items()
            }
            assert (read["code"], read["params"]) == ("1", {"x": 1})
            assert files == {"a": content, "b/c": b"y"}
        else:
            assert len(order) == head + len(order.partition(b"\n")[0]) + 1


@pytest.mark.parametrize("text", [b"", b"{}", b"actum-order x 1\n", b"actum-order 1 1"])
def test_stdin_that_is_no_frame_counts_whole(text: bytes) -> None:
    assert snippet_order.sizes(text) == (len(text), 0)


def test_content_beyond_what_the_first_line_declares_counts_too() -> None:
    assert snippet_order.sizes(b"actum-order 2 0\n{}" + bytes(100)) == (2, 100)


def test_both_sides_of_the_sandbox_have_the_same_names() -> None:
    assert snippet_order.PROGRAM == root.SNIPPET
    assert snippet_order.FRAME == snippet_program._FRAME


@pytest.mark.parametrize("code", ["", " \n\t"])
def test_empty_code_is_refused_by_its_name(code: str) -> None:
    for params in ({}, {"x": 1}):
        with pytest.raises(ContractInvalid) as refused:
            snippet.order(code, params, {})
        assert [problem.field for problem in refused.value.problems] == ["code"]
