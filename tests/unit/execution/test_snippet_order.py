"""The order of a snippet reads the same however it was put together."""

from __future__ import annotations

import json

import pytest

from actum.execution import snippet

CODES = ("", "1", 'print("\\"\\\\")', "é\N{GRINNING FACE}\ud800", "a\nb\t\x00\x7f", "}" * 5_000)


@pytest.mark.parametrize("code", CODES)
def test_an_order_without_params_and_files_is_encoded_as_any_other(code: str) -> None:
    given = snippet.order(code, {"x": 1}, {})
    alone = snippet.order(code, {}, {})
    assert alone == given.replace(b'"params": {"x": 1}', b'"params": {}')
    assert json.loads(alone) == {"code": code, "params": {}, "files": {}}


def test_code_that_is_no_text_is_refused_with_and_without_params() -> None:
    for params in ({}, {"x": 1}):
        with pytest.raises(TypeError):
            snippet.order(b"1", params, {})  # type: ignore[arg-type]
