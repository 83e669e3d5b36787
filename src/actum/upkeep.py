"""Cleans up after dead processes: records, transactions, inputs, folders and cgroups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from actum.contract.model import RunnerKind
from actum.execution.lost_executions import close_lost
from actum.execution.services import Services
from actum.execution.transactions import Transactions
from actum.sandbox import sweep

if TYPE_CHECKING:
    from actum.work.work_items import WorkItems


def clean_up(
    home: Path,
    services: Services,
    *,
    work_items: Callable[[], WorkItems],
    transactions: Callable[[], Transactions],
) -> None:
    """Close what crashed processes left open. A feature not used in a home costs one check."""
    close_lost(services.executions, services.ledger)
    services.approvals.forget_closed()
    if services.database.row("SELECT 1 FROM open_actions LIMIT 1") is not None:
        from actum.executors.plane import close_orphans

        close_orphans(services.database, services.ledger.log)
    if (home / "work").is_dir():
        work_items().recover()
    if (home / "transactions").is_dir():
        transactions().recover()
    if (home / "inputs").is_dir():
        from actum.workspace import sealed

        sealed.recover(home)
    sweep.sweep_homes()
    if RunnerKind.LOCAL in services.runners:
        sweep.sweep_groups()
    docker = services.runners.get(RunnerKind.DOCKER)
    if docker is not None and hasattr(docker, "remove_leftovers"):  # a runner of a test has none
        docker.remove_leftovers()
