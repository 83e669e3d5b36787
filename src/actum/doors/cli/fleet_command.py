"""`actum fleet`: the database of durable runs on many machines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from actum.doors.cli import command_table, exit_codes, terminal


@click.group("fleet", cls=command_table.Group)
def command() -> None:
    """The database that projects of many machines keep their durable runs in."""


def _of_libpq() -> None:
    """libpq finds the password, in PGPASSFILE or ~/.pgpass."""


@command.command("migrate")
@click.option(
    "--store",
    metavar="URL",
    help="The address with the user that owns the database.  [default: `[runs] store`]",
)
def migrate_database(store: str | None) -> int:
    """Make or upgrade the ledger of runs and its queue in a PostgreSQL database.

    \b
    actum fleet migrate --store postgresql://owner@db.example/fleet

    Its user owns the database and may create roles. The password comes from PGPASSFILE or
    ~/.pgpass. A second run changes nothing. Grant actum_submit, actum_worker and actum_read to the
    logins of submitters, workers and readers.
    """
    from actum.contract import run_store
    from actum.run_queue import fleet_link, password_of, require_approved_store

    password: Callable[[], str | None] = _of_libpq
    if store is None:
        from actum import settings as project

        found = project.load(project.discover(Path.cwd(), command_table.given_home()), os.environ)
        require_approved_store(found)
        store, password = found.runs_store, password_of(found)
    if store == run_store.EMBEDDED or (problem := run_store.problem_with(store)):
        said = "names no database" if store == run_store.EMBEDDED else problem
        raise click.UsageError(f"The store {said}. Permitted: {run_store.PERMITTED}.")
    link = fleet_link(store, home="migration", password=password)
    from actum.runs.dispatch.engine_schema import engine_schema
    from actum.runs.ledger.fleet_schema import MIGRATIONS, migrate

    try:
        applied = migrate(link, engine_schema())
    finally:
        link.close()
    if command_table.wants_json():
        terminal.document({"version": len(MIGRATIONS), "applied": applied})
    else:
        terminal.line(f"ledger version {len(MIGRATIONS)}")
        terminal.aside("The database was ready." if not applied else f"Applied {applied}.")
    return exit_codes.SUCCESS
