"""`--profile` and `--set`: the execution contract of a run, on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from actum.doors.cli.request_from_options import Usage


def contract_options(function: Any) -> Any:
    profile = click.option(
        "--profile",
        type=click.Choice(["full", "ci", "smoke"]),
        help="A preset of the contract's fields; beats environment variables.",
    )
    fields = click.option(
        "--set",
        "fields",
        metavar="FIELD=VALUE",
        multiple=True,
        help="A field of the contract, e.g. maxFilesPerStep=5; beats the profile.",
    )
    return profile(fields(function))


def config_of(profile: str | None, fields: Sequence[str]) -> dict[str, Any]:
    """The requested fields. A name that no field has is refused by the resolver."""
    from actum.runs.contract.fields import BY_NAME

    config: dict[str, Any] = {} if profile is None else {"profile": profile}
    for word in fields:
        name, equals, text = word.partition("=")
        if not equals:
            raise Usage(f"--set {word}: write FIELD=VALUE.")
        if name in config:
            raise Usage(f"{name} is given twice: leave out one of them.")
        config[name] = BY_NAME[name].from_text(text) if name in BY_NAME else text
    return config
