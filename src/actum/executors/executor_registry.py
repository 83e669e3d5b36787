"""The registry of executors: files whose exact bytes have an approval in force.

Sources are the shipped files, the project's `executors/` folder and packages with an entry point in
the group `actum.executors`. The host imports none of them: it reads their bytes and compares them
with their verdict. Only a child loads them, from the same bytes that were compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import metadata, resources
from pathlib import Path

from actum.contract.canonical import sha256_bytes
from actum.executors import actions
from actum.executors.actions import Action, Actions
from actum.executors.model import Declaration, Version
from actum.executors.reasons import Reason
from actum.executors.review import MOST_SOURCE_BYTES, History
from actum.executors.verdicts import Verdicts, contract_sha256
from actum.value import value

FOLDER = "executors"
ENTRY_POINTS = "actum.executors"


@value
class Source:
    """A file that may hold an executor."""

    file: str  #: its name, by which the gate recognises it
    origin: str  #: for people
    content: bytes

    @property
    def sha256(self) -> str:
        return sha256_bytes(self.content)


@value
class Registered:
    """An executor that may run: its reviewed declaration and the reviewed bytes."""

    declared: Declaration
    source: bytes
    source_sha256: str
    origin: str


@value
class NotRegistered:
    """A file that may not run, and why."""

    file: str
    origin: str
    code: str
    message: str


@value
class Route:
    """An action, its executor, and the reason, if any, why every such request is refused."""

    action: Action
    executor: Registered | None
    objection: Reason | None

    @classmethod
    def of(cls, action: Action, executor: Registered | None) -> Route:
        return cls(action=action, executor=executor, objection=_objection(action, executor))


def _objection(action: Action, executor: Registered | None) -> Reason | None:
    if action.action_version is None:
        return Reason.ACTION_VERSION_MISSING
    if Version.parse(action.action_version) is None:
        return Reason.ACTION_VERSION_INVALID
    if executor is None:
        return Reason.EXECUTOR_NOT_FOUND
    if not _new_enough(executor.declared.version, action.min_executor_version):
        return Reason.EXECUTOR_VERSION_INCOMPATIBLE
    declared = {name.upper() for name in executor.declared.capabilities}
    if not set(action.required_capabilities) <= declared:
        return Reason.EXECUTOR_CAPABILITY_MISSING
    return None


def _new_enough(version: str, minimum: str | None) -> bool:
    if minimum is None:
        return True
    found, wanted = Version.parse(version), Version.parse(minimum)
    return found is not None and wanted is not None and found >= wanted


class Registry:
    """Read on first use, and again after a review; changes of files in between are not seen."""

    def __init__(self, root: Path, verdicts: Verdicts) -> None:
        self.folder = root / FOLDER
        self.verdicts = verdicts

    @cached_property
    def _surveyed(self) -> tuple[Mapping[str, Registered], tuple[NotRegistered, ...]]:
        return _register(self.sources(), self.verdicts)

    def read_again(self) -> None:
        """A verdict was added."""
        for name in ("_surveyed", "actions", "routes"):
            self.__dict__.pop(name, None)

    @property
    def executors(self) -> Mapping[str, Registered]:
        return self._surveyed[0]

    @property
    def not_registered(self) -> tuple[NotRegistered, ...]:
        return self._surveyed[1]

    @cached_property
    def actions(self) -> Actions:
        return actions.load(self.folder, [each.declared for each in self.executors.values()])

    @cached_property
    def routes(self) -> Mapping[str, Route]:
        """By the action's name."""
        return {
            name: Route.of(action, self.executors.get(action.executor_id))
            for name, action in self.actions.actions.items()
        }

    def sources(self) -> Iterator[Source]:
        yield from shipped_sources()
        yield from _folder_sources(self.folder)
        yield from _entry_point_sources()

    def history(self, executor_id: str, file: str) -> History:
        """The earlier verdicts about an id, for the review of a file that declares it."""
        holder = self.executors.get(executor_id)
        mine = f"{FOLDER}/{file}"
        return History(
            elsewhere=holder.origin if holder and holder.origin != mine else "",
            approved_of_id=self.verdicts.approved_version_of(executor_id),
            approved_of_file=self.verdicts.approved_under(
                file, besides={source.sha256 for source in shipped_sources()}
            ),
        )


def _register(
    sources: Iterable[Source], verdicts: Verdicts
) -> tuple[dict[str, Registered], tuple[NotRegistered, ...]]:
    registered: dict[str, Registered] = {}
    refused: list[NotRegistered] = []
    for source in sources:
        code, message = "", ""
        review = verdicts.about(source.sha256)
        if review is None:
            code, message = "EXECUTOR_NOT_REVIEWED", "no verdict about these bytes is recorded"
        elif not review.approved or review.declared is None:
            code, message = "EXECUTOR_REJECTED", "the review gate rejected these bytes"
        elif review.contract != contract_sha256():
            code, message = "EXECUTOR_REVIEW_STALE", "it was reviewed under another contract"
        elif review.declared.executor_id in registered:
            taken = registered[review.declared.executor_id].origin
            code, message = "EXECUTOR_ID_TAKEN", f"{review.declared.executor_id} is {taken}"
        if code or review is None or review.declared is None:
            refused.append(
                NotRegistered(file=source.file, origin=source.origin, code=code, message=message)
            )
            continue
        registered[review.declared.executor_id] = Registered(
            declared=review.declared,
            source=source.content,
            source_sha256=source.sha256,
            origin=source.origin,
        )
    return registered, tuple(refused)


def shipped_sources() -> Iterator[Source]:
    folder = resources.files("actum.executors").joinpath("shipped")
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".py"):
            yield Source(file=file.name, origin="shipped", content=file.read_bytes())


def _folder_sources(folder: Path) -> Iterator[Source]:
    if not folder.is_dir():
        return
    for file in sorted(folder.glob("*.py")):
        if not file.name.startswith(("_", "test_")) and file.is_file():
            yield Source(file=file.name, origin=f"{FOLDER}/{file.name}", content=read_source(file))


def read_source(file: Path) -> bytes:
    """At most one byte more than the gate accepts, so that a huge file cannot fill the memory."""
    with file.open("rb") as opened:
        return opened.read(MOST_SOURCE_BYTES + 1)


def _entry_point_sources() -> Iterator[Source]:
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        # Not `entry.load()`: importing a package runs its code here, unconfined.
        path = "/".join(entry.module.split(".")) + ".py"
        located = Path(str(entry.dist.locate_file(path))) if entry.dist else None
        if located is not None and located.is_file():
            yield Source(
                file=located.name,
                origin=f"entry point {entry.name} of {entry.dist.name if entry.dist else '?'}",
                content=read_source(located),
            )
