"""Output transforms: from the bytes of stdout to a value. Strict, bounded, never guessing.

What cannot be read exactly as declared is an `OutputInvalid`: the tool ran, so the raw output is
kept and the execution ends as OUTPUT_INVALID. Only `parse` exists; other transforms are refused
when the adapter is loaded (`check_supported`), never skipped.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from typing import NoReturn

from actum.adapters.template import check_templates
from actum.contract.limits import STDOUT_BYTES
from actum.contract.model import Json
from actum.errors import ActumError, ContractInvalid, Violation
from actum.registry.model import Adapter, Transform


class OutputInvalid(ActumError):
    """The tool's output is not what its adapter declares."""

    code = "OUTPUT_INVALID"


def apply_output_transforms(
    transforms: tuple[Transform, ...], stdout: bytes, *, truncated: bool = False
) -> Json:
    """The value that stdout stands for; None when the adapter declares no transform.

    A truncated stream is refused: the first half of a document is another document.
    """
    if not transforms:
        return None
    unsupported = _unsupported(transforms)
    if unsupported:
        raise OutputInvalid(unsupported[0].message)
    if truncated or len(stdout) > STDOUT_BYTES:
        raise OutputInvalid(
            f"stdout is over {STDOUT_BYTES} bytes and was cut, so it cannot be parsed.",
            remedy="Ask the tool for less output.",
        )
    return _PARSERS[transforms[0].spec](_decoded(stdout))


def check_supported(adapter: Adapter) -> tuple[Violation, ...]:
    """Whatever in `adapter` this version cannot carry out; to be asked before it is approved."""
    inputs = tuple(
        _violation(
            f"transforms.input[{index}]", transform.type, "Input transforms do not exist yet."
        )
        for index, transform in enumerate(adapter.input_transforms)
    )
    templates = adapter.cli.arg_mapping if adapter.cli else {}
    # Asked for and silently not done would be a promise broken.
    again = []
    if adapter.retry.max_attempts > 1:
        again.append(
            Violation(
                code="RETRY_UNSUPPORTED",
                field="errors.retry.max_attempts",
                value=str(adapter.retry.max_attempts),
                message="errors.retry: this version makes one attempt. Write max_attempts: 1.",
            )
        )
    if adapter.fallback is not None:
        again.append(
            Violation(
                code="RETRY_UNSUPPORTED",
                field="errors.fallback",
                value=adapter.fallback.adapter_id,
                message="errors.fallback: this version has no fallback. Write fallback: null.",
            )
        )
    return (
        *again,
        *check_templates(templates, "interface.cli.arg_mapping"),
        *inputs,
        *_unsupported(adapter.output_transforms),
    )


def _unsupported(transforms: tuple[Transform, ...]) -> tuple[Violation, ...]:
    return tuple(
        _violation(
            f"transforms.output[{index}]",
            f"{transform.type}: {transform.spec}",
            f"transforms.output[{index}]: only one transform exists, and it comes first: parse as "
            f"{', '.join(_PARSERS)}.",
        )
        for index, transform in enumerate(transforms)
        if index > 0
        or transform.type != "parse"
        or not isinstance(transform.spec, str)
        or transform.spec not in _PARSERS
    )


def _violation(field: str, value: str, message: str) -> Violation:
    return Violation(code="TRANSFORM_UNSUPPORTED", field=field, value=value, message=message)


def _decoded(stdout: bytes) -> str:
    try:
        return stdout.decode()
    except UnicodeDecodeError as error:
        raise OutputInvalid(f"stdout is not UTF-8 at byte offset {error.start}.") from error


def _json(text: str) -> Json:
    return _strict_json(text, "stdout")


def _json_lines(text: str) -> Json:
    # Not splitlines(): U+2028 and its kin are ordinary characters inside a JSON string.
    return [
        _strict_json(line, f"stdout line {number}")
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]


def _strict_json(text: str, where: str) -> Json:
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise OutputInvalid(f"{where} is not JSON: {error}.") from error


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is beyond the range of a double")
    return number


def _csv(text: str) -> Json:
    """One object per row, keyed by the first row."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(rows, [])
        if len(set(header)) != len(header):
            raise OutputInvalid("stdout line 1: a column name occurs twice.")
        found: list[dict[str, str]] = []
        for row in rows:
            if len(row) != len(header):
                raise OutputInvalid(
                    f"stdout line {rows.line_num} has {len(row)} fields, "
                    f"the header has {len(header)}."
                )
            found.append(dict(zip(header, row, strict=True)))
    except csv.Error as error:
        raise OutputInvalid(f"stdout line {rows.line_num} is not CSV: {error}.") from error
    return found


def _yaml(text: str) -> Json:
    from actum.contract.document import load_document

    try:
        return load_document(text, file="stdout").value
    except ContractInvalid as error:
        raise OutputInvalid(f"stdout is not one YAML document: {error.problems[0]}") from error


def _lines(text: str) -> Json:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _text(text: str) -> Json:
    return text


_PARSERS: dict[str, Callable[[str], Json]] = {
    "json": _json,
    "json_lines": _json_lines,
    "csv": _csv,
    "yaml": _yaml,
    "lines": _lines,
    "text": _text,
}
