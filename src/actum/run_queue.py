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
from actum.evidence.adoption import adopt_rows
from actum.evidence.log import Log
from actum.runs.contract.check import SUPPORTED
from actum.runs.dispatch import embedded
from actum.runs.durable_runs import Runs
from actum.runs.ledger.sqlite_store import SqliteStore
from actum.runs.new_run import queues_of
from actum.runs.run_ledger import RunLedger
from actum.settings import Settings
from actum.store.database import Database
from actum.store.keys import Keyring
from actum.value import value

if TYPE_CHECKING:
    from actum.runs.perform import OnEvent, Performer
    from actum.runtime import Runtime
    from actum.work.work_items import WorkItems


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
    """The durable runs of one machine."""
    ledger = RunLedger(SqliteStore(database.tables, log), clock, embedded.enqueue)

    def dispatch() -> embedded.EmbeddedDispatch:
        return embedded.EmbeddedDispatch(
            settings.home,
            queues=queues_of(SUPPORTED),
            waiting=ledger.waiting,
            owner_of=ledger.owner_of,
        )

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
