"""The executors of a project (the "pure plane": functions without effects), to open and close.

Wiring makes one, and the runtime calls it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from actum.contract.model import Json
from actum.evidence.log import Log
from actum.executors.action_pipeline import Pipeline
from actum.executors.action_records import Journal
from actum.executors.actions import DEFAULT_PROFILE
from actum.executors.executor_registry import Registry, read_source
from actum.executors.model import ActionRequest, ActionResult
from actum.executors.pool import Pool
from actum.executors.review import examine
from actum.executors.values import Note, SessionValues
from actum.executors.verdicts import Review, Verdicts
from actum.store.database import Database
from actum.store.keys import PublicKey

SHIPPED_VERDICTS = "verdicts.json"


class Executors:
    """The executors of one project. Thread-safe; close it when done."""

    def __init__(
        self,
        *,
        root: Path,
        database: Database,
        log: Log,
        trusted: Mapping[str, PublicKey],
        pool: Pool | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clock = clock
        self.pool = pool or Pool()
        self.verdicts = Verdicts(database, log, trusted)
        _adopt_shipped(self.verdicts)
        self.registry = Registry(root, self.verdicts)
        self.values = SessionValues()
        self.pipeline = Pipeline(
            registry=self.registry,
            journal=Journal(database, log),
            pool=self.pool,
            values=self.values,
            clock=clock,
        )

    def act(
        self, request: ActionRequest | Mapping[str, Any], *, profile: str = DEFAULT_PROFILE
    ) -> ActionResult:
        return self.pipeline.act(request, profile=profile)

    def value(self, result: ActionResult) -> Json:
        """The output of a result of this session."""
        return self.values.value(result)

    def note(self, result: ActionResult) -> Note | None:
        """Where the executor failed, if it did."""
        return self.values.note(result)

    def review(self, path: Path, *, by: str) -> Review:
        """Review a file and record the verdict, approved or not."""
        source = read_source(path)
        review = examine(
            source,
            file=path.name,
            by=by,
            at=self._clock(),
            look_up=lambda executor_id: self.registry.history(executor_id, path.name),
        )
        self.verdicts.record(review)
        self.registry.read_again()
        return review

    @property
    def folder(self) -> Path:
        return self.registry.folder

    def close(self) -> None:
        self.pool.close()


def close_orphans(database: Database, log: Log) -> tuple[int, ...]:
    """Close the PENDING records of dead processes."""
    return Journal(database, log).close_orphans()


def shipped_reviews() -> tuple[Review, ...]:
    """The gate's verdicts about the shipped files, from the package."""
    folder = resources.files("actum.executors").joinpath("shipped")
    documents = json.loads(folder.joinpath(SHIPPED_VERDICTS).read_text("utf-8"))
    return tuple(Review.read(document) for document in documents)


def _adopt_shipped(verdicts: Verdicts) -> None:
    """Copy the package's verdicts into this project once, signed by the project's key."""
    missing = [
        review
        for review in shipped_reviews()
        if (known := verdicts.about(review.source_sha256)) is None
        or known.contract != review.contract
    ]
    if missing:
        verdicts.record(*missing)
