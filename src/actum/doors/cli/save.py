"""`actum exec --save`: writes the contract to a file for `actum exec -f`.

It holds only the request. Fields that are filled in at creation (an id, the time) are left out:
with them, running the file a second time would return the first result.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from actum.contract.model import Json
from actum.contract.parse import parse_contract


class _Writer(yaml.SafeDumper):
    """Text is always quoted or a block, so that it is never read back as a number or a boolean."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _text(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.strip("\n") else '"'
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _section(writer: yaml.SafeDumper, section: dict[str, Json]) -> yaml.MappingNode:
    node = yaml.MappingNode("tag:yaml.org,2002:map", [], flow_style=False)
    for name, value in section.items():
        plain = re.fullmatch(r"[a-z]+(_[a-z]+)*", name) and name not in ("null", "true", "false")
        key = writer.represent_scalar("tag:yaml.org,2002:str", name, style=None if plain else '"')
        node.value.append((key, writer.represent_data(value)))
    return node


_Writer.add_representer(str, _text)
_Writer.add_representer(dict, _section)


def contract_yaml(document: Mapping[str, Json]) -> str:
    text = _dumped(document, letters=True)
    # YAML escapes control characters, but treats bidirectional controls as letters.
    plain = all(letter.isprintable() or letter == "\n" for letter in text)
    return text if plain else _dumped(document, letters=False)


def _dumped(document: Mapping[str, Json], *, letters: bool) -> str:
    """`letters`: do not escape letters of other alphabets."""
    text: str = yaml.dump(
        dict(document), Dumper=_Writer, sort_keys=False, allow_unicode=letters, width=2**20
    )
    return text


def save_contract(source: Mapping[str, Any] | bytes | Path, target: Path) -> None:
    """Write the contract; a malformed one is refused."""
    text = contract_yaml(parse_contract(source).document)
    if str(target) == "-":
        sys.stdout.write(text)
        return
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--save {target}: {error.strerror}.") from error
