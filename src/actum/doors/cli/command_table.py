"""Base classes of the command line: commands are found by name and imported only when invoked.

`--home`, `--session` and `--json` are accepted before a command and after it; the later one counts.
Nothing here knows what a command does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from actum.doors.cli.request_from_options import Usage

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from actum.run_queue import RunQueue
    from actum.runtime import Runtime
    from actum.settings import Settings

_PREFIX = "actum."


def _remember(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    # Context.meta is shared by a command and the groups above it.
    if value:
        ctx.meta[f"{_PREFIX}{option.name}"] = value


def common_options() -> list[click.Parameter]:
    """New options for every command: click keeps state in them."""
    return [
        click.Option(
            ["--home"],
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            expose_value=False,
            callback=_remember,
            help="The project to use; otherwise the nearest .actum/ upwards.",
        ),
        click.Option(
            ["--session"],
            metavar="ID",
            expose_value=False,
            callback=_remember,
            help="Store raw output under this session; otherwise one per command.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Print one JSON document on stdout, and nothing else.",
        ),
    ]


def wants_json() -> bool:
    return bool(click.get_current_context().meta.get(f"{_PREFIX}json"))


def given_home() -> Path | None:
    home: Path | None = click.get_current_context().meta.get(f"{_PREFIX}home")
    return home


def given_session() -> str | None:
    session: str | None = click.get_current_context().meta.get(f"{_PREFIX}session")
    return session


def open_runtime() -> Runtime:
    """The project that the options or the working directory name."""
    from actum.runtime import Runtime

    return Runtime.open(home=given_home(), session=given_session(), pool=False)


def open_queue() -> AbstractContextManager[RunQueue]:
    """The runs of that project, for a command that carries none out."""
    from actum.run_queue import open_queue

    def open_whole(settings: Settings) -> Runtime:
        from actum.runtime import Runtime

        return Runtime(settings, pool=False)

    return open_queue(given_home(), open_whole)


class Command(click.Command):
    """A command that takes the common options as well as its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Usage as wrong:
            raise click.UsageError(str(wrong), ctx) from wrong


class ToolCommand(Command):
    """A command that names a tool: an option that it does not have may be one of the tool's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            if given and not given[0].startswith("-") and "--" not in given:
                raise click.NoSuchOption(
                    wrong.option_name,
                    f"{wrong.message} Words for the tool that begin with - come after `--`:"
                    f" `actum {ctx.info_name} {given[0]} -- {wrong.option_name} …`.",
                    wrong.possibilities,
                    ctx,
                ) from wrong
            raise


class Group(click.Group):
    """A command with commands below it, such as `tools`."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += common_options()


class LazyGroup(Group):
    """Commands as ``name -> (module, one line of help)``; only the invoked one is imported."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module = importlib.import_module(self._lazy[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._lazy and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], self._lazy, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"There is no command {args[0]!r}.{hint} `actum --help` lists them.")
        return super().resolve_command(ctx, args)
