"""The options of a request, shared by `exec` and `check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from actum.contract.request import OPTIONS

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_OPTIONS = (
    click.argument(
        "words", nargs=-1, type=click.UNPROCESSED, metavar="[TOOL[:OPERATION]] [-- ARGS]..."
    ),
    click.option(
        "-f",
        "contract",
        type=click.Path(path_type=Path, allow_dash=True),
        metavar="CONTRACT.yaml",
        help="The contract in a file, instead of the options below; - is stdin.",
    ),
    *(
        click.option(
            option.flag, name, multiple=option.repeated, metavar=option.metavar, help=option.help
        )
        for name, option in OPTIONS.items()
    ),
)


def asking_options(function: Decorated) -> Decorated:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
