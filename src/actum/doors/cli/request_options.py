"""The options of a request, shared by `exec`, `sh` and `check`, and those of running it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from actum.contract.request import OPTIONS

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Decorator = Callable[[Decorated], Decorated]

_FIELDS: tuple[Decorator[Any], ...] = tuple(
    click.option(
        option.flag, name, multiple=option.repeated, metavar=option.metavar, help=option.help
    )
    for name, option in OPTIONS.items()
)
_ASKING: tuple[Decorator[Any], ...] = (
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
    *_FIELDS,
)
_SCRIPT: tuple[Decorator[Any], ...] = (
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT | COMMAND [ARG]..."),
    *_FIELDS,
)
_RUNNING: tuple[Decorator[Any], ...] = (
    click.option(
        "--save",
        type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
        metavar="FILE",
        help="Write the contract for `exec -f` instead of running it.",
    ),
    click.option(
        "--exit-code",
        "whose_code",
        type=click.Choice(["actum", "tool"]),
        default="actum",
        help="Whose exit code to return.",
    ),
    click.option(
        "--overlay",
        "changes",
        type=click.Choice(["commit", "ask", "discard"]),
        default="commit",
        help="Changed files are committed, left for `actum diff ID`, or discarded.",
    ),
    click.option(
        "--wait",
        is_flag=False,
        flag_value="1h",
        metavar="[TIME]",
        help="Wait for an approval, if one is needed: --wait, or --wait=10m.",
    ),
    click.option(
        "--raw",
        is_flag=True,
        help="On a terminal, keep all control sequences of the tool's output.",
    ),
)


def asking_options(function: Decorated) -> Decorated:
    """A tool and its arguments, or a contract file; and every field of a request."""
    return _decorated(function, _ASKING)


def script_options(function: Decorated) -> Decorated:
    """A script or a command, and every field of a request."""
    return _decorated(function, _SCRIPT)


def running_options(function: Decorated) -> Decorated:
    return _decorated(function, _RUNNING)


def _decorated(function: Decorated, options: tuple[Decorator[Any], ...]) -> Decorated:
    for option in reversed(options):
        function = option(function)
    return function
