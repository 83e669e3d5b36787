"""The runs of a project for a command that carries none out: the ledger without the pipeline.

`runs submit` writes one transaction, so it opens the home and imports nothing that executes. What
needs more, such as the check of a validator, opens the whole project then. Commands that execute
clean up after dead processes; these do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from actum import settings as project
from actum.contract.run_store import EMBEDDED
from actum.errors import Refused
from actum.evidence.adoption import adopt_rows
from actum.evidence.log import Log
from actum.runs.contract.check import SUPPORTED
from actum.runs.dispatch import embedded
from actum.runs.dispatch.port import Dispatch
from actum.runs.durable_runs import Runs
from actum.runs.ledger.sqlite_store import SqliteStore
from actum.runs.new_run import queues_of
from actum.runs.run_ledger import RunLedger
from actum.settings import Settings
from actum.store.database import Database
from actum.store.keys import Keyring
from actum.value import value

if TYPE_CHECKING:
    from actum.runs.ledger.postgres_link import PostgresLink
    from actum.runs.perform import OnEvent, Performer
    from actum.runtime import Runtime
    from actum.work.work_items import WorkItems

#: A database that is away for so long is waited for.
_PATIENCE_S = 60.0


@value
class RunQueue:
    """The parts of a `Runtime` with which runs are submitted, shown and cancelled."""

    runs: Runs
    database: Database


@contextmanager
def open_queue(home: Path | None, open_whole: Callable[[Settings], Runtime]) -> Iterator[RunQueue]:
    """The queue of the project that `home` or the working directory names. `open_whole` opens all
    of it, if that is needed."""
    settings = project.load(project.discover(Path.cwd(), home), os.environ)
    with ExitStack() as opened:
        keyring = Keyring.open(settings.home, trust=settings.trusted_keys)
        database = Database.open(settings.home)
        opened.callback(database.close)
        log = Log(database, keyring.signer)
        log.adopt()
        adopt_rows(database, log)
        whole = cache(lambda: opened.enter_context(open_whole(settings)))
        runs = runs_of(
            settings,
            database,
            log,
            keyring,
            lambda: datetime.now(UTC),
            work_items=lambda: whole().work_items,
            performer=lambda on_event: whole().runs.performer(on_event),  # noqa: PLW0108 -- opens it late
        )
        yield RunQueue(runs=runs, database=database)


def runs_of(
    settings: Settings,
    database: Database,
    log: Log,
    keyring: Keyring,
    clock: Callable[[], datetime],
    *,
    work_items: Callable[[], WorkItems],
    performer: Callable[[OnEvent], Performer],
) -> Runs:
    """The durable runs of a project: in its own database, or in that of a fleet."""
    if settings.runs_store == EMBEDDED:
        ledger, dispatch = _embedded(settings, database, log, clock)
    else:
        ledger, dispatch = _fleet(settings, log, clock)
    return Runs(
        root=settings.root,
        home=settings.home,
        ledger=ledger,
        work_items=work_items,
        performer=performer,
        dispatch=dispatch,
        signer=keyring.signer,
        trusted=keyring.trusted,
        clock=clock,
        login=settings.login,
    )


_Parts = tuple[RunLedger, Callable[[], Dispatch]]


def _embedded(
    settings: Settings, database: Database, log: Log, clock: Callable[[], datetime]
) -> _Parts:
    ledger = RunLedger(SqliteStore(database.tables, log), clock, embedded.enqueue)

    def dispatch() -> Dispatch:
        return embedded.EmbeddedDispatch(
            settings.home,
            queues=queues_of(SUPPORTED),
            waiting=ledger.waiting,
            owner_of=ledger.owner_of,
        )

    return ledger, dispatch


def fleet_ledger(settings: Settings, log: Log) -> RunLedger:
    """The ledger of a project whose runs are in a fleet's database, for code that reads it."""
    ledger, _ = _fleet(settings, log, lambda: datetime.now(UTC))
    return ledger


def _fleet(settings: Settings, log: Log, clock: Callable[[], datetime]) -> _Parts:
    require_approved_store(settings)
    link = fleet_link(settings.runs_store, home=log.origin, password=password_of(settings))
    from actum.runs.dispatch.fleet_enqueue import enqueue
    from actum.runs.ledger.postgres_store import PostgresStore

    def dispatch() -> Dispatch:
        from actum.runs.dispatch.procrastinate_dispatch import ProcrastinateDispatch

        return ProcrastinateDispatch(
            link, queues=queues_of(SUPPORTED), dead_after_s=settings.runs_dead_after_s
        )

    return RunLedger(PostgresStore(link, log), clock, enqueue), dispatch


def fleet_link(store: str, *, home: str, password: Callable[[], str | None]) -> PostgresLink:
    """The connections to a fleet's database."""
    try:
        from actum.runs.ledger.postgres_link import PostgresLink
    except ModuleNotFoundError as error:
        raise Refused(
            "RUNS_STORE_UNAVAILABLE",
            f"runs.store: PostgreSQL needs the package {error.name}, which is not installed.",
            remedy="Nothing was changed. Run `pip install 'actum[fleet]'`.",
        ) from error
    return PostgresLink(store, home=home, password=password, patience_s=_PATIENCE_S)


def password_of(settings: Settings) -> Callable[[], str | None]:
    """Fetches the password when a connection is opened; ``None`` leaves it to libpq."""

    @cache
    def fetched() -> str | None:
        name = settings.runs_password
        if name is None:
            return None
        from actum.registry.lock import read_lock
        from actum.secrets.providers import fetch
        from actum.secrets.sources import Unavailable

        source = settings.secrets.get(name)
        if source is None:
            raise Refused(
                "SECRET_MISSING",
                f"runs.password: [secrets] of actum.toml has no {name}.",
                remedy=f'Nothing was changed. Add {name} = {{ env = "…" }} there.',
            )
        trusted = Keyring.open(settings.home, trust=settings.trusted_keys).approving
        writable = read_lock(settings.root, trusted).writable(settings.root)
        try:
            found = fetch(source, os.environ, str(settings.root), writable)
        except Unavailable as why:
            raise Refused(
                why.code,
                f"runs.password: the secret {name} (from {source}) is not available: {why}.",
                remedy="Nothing was changed. Correct [secrets] in actum.toml.",
            ) from why
        return found.decode("utf-8", "surrogateescape")

    return fetched


def require_approved_store(settings: Settings) -> None:
    """A tool that could edit the file must not choose the database that is given a password."""
    from actum.registry.pinned_settings import settings_state  # runs of one machine need none

    state = settings_state(settings.file, settings.home)
    wrong = [
        each.setting for each in state.differences if each.setting.startswith(("runs.", "secrets."))
    ]
    if wrong:
        raise Refused(
            "SETTINGS_CHANGED",
            f"{', '.join(wrong)}: actum.toml differs from what was approved.",
            remedy="Nothing was changed. `actum config diff` shows what changed; `actum config"
            " approve --by WHO` approves it.",
        )
