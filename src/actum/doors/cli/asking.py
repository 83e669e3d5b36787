"""The options by which an execution is asked for, shared by `exec` and `check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
    click.option(
        "-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A named parameter."
    ),
    click.option("--stdin", metavar="FILE", help="What the tool reads on stdin; - is our own."),
    click.option("--file", "files", multiple=True, metavar="PATH", help="An input file."),
    click.option("--env", multiple=True, metavar="NAME=VALUE", help="An environment variable."),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        metavar="NAME[=HOW]",
        help="A secret of the project: env (default), env:VARIABLE or fd.",
    ),
    click.option("--cwd", metavar="DIR", help="Where the tool starts; otherwise here."),
    click.option("--timeout", metavar="TIME", help="500ms, 5s, 2m."),
    click.option("--memory", metavar="SIZE", help="256M, 1G."),
    click.option(
        "--allow-host", "allow_hosts", multiple=True, metavar="HOST", help="Reachable host."
    ),
    click.option(
        "--set", "fields", multiple=True, metavar="PATH=JSON", help="Any field of the contract."
    ),
    click.option("--purpose", metavar="TEXT", help="Why, for the record."),
    click.option("--as", "requested_by", metavar="WHO", help="Who asks, for the record."),
    click.option(
        "--adapter", "adapter_id", metavar="ID", help="Which adapter; otherwise the active one."
    ),
)


def asking_options(function: Decorated) -> Decorated:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
