"""The results of one attempt, as frozen data: ending, streams, files, enforcement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from actum.contract.canonical import sha256_bytes
from actum.value import field, replace, value


@value(kw_only=False)
class Exited:
    code: int


@value(kw_only=False)
class Signalled:
    """The tool died of a signal that Actum did not send."""

    number: int


@value(kw_only=False)
class DeadlinePassed:
    """Stopped at the wall-clock limit. `signal` ended it; 0 if it exited by itself."""

    signal: int


@value(kw_only=False)
class LimitKilled:
    """Killed for a limit that the kernel proved to be hit."""

    limit: str  #: ``memory_mb``, ``scratch``
    evidence: str  #: e.g. ``memory.oom_control oom_kill 0 -> 1``


@value(kw_only=False)
class PolicyBroken:
    """Killed for an attempt that has no legitimate use."""

    attempt: str  #: e.g. ``system call mount``


@value(kw_only=False)
class CoverLost:
    """Ended because the host replaced a name that was covered inside."""

    paths: tuple[str, ...]


@value(kw_only=False)
class GoverningChanged:
    """Names that decide what is executed later differ after the tool has ended.

    They were not covered, so the tool could write them.
    """

    paths: tuple[str, ...]
    exit_code: int | None
    signal: int | None
    lost: bool = False  #: a cover was lost as well


@value(kw_only=False)
class Cancelled:
    signal: int
    started: bool = True  #: ``False``: cancelled before the tool was started


@value(kw_only=False)
class Closed:
    """A tool with a session, ended by Actum when it was no longer needed.

    `signal` ended it; 0 if it exited by itself.
    """

    signal: int


@value(kw_only=False)
class Failed:
    """A tool with a session reported failure, broke the protocol, or was gone."""

    reason: str
    transport: bool = False  #: no answer: it is unknown whether the call took effect
    untouched: bool = False  #: known not to: it was gone before the request


@value(kw_only=False)
class SealLost:
    """The host replaced an input file on which its sealed copy was mounted. The tool may have read
    other bytes than the digested ones."""

    path: str


Ending: TypeAlias = (
    Exited
    | Signalled
    | DeadlinePassed
    | LimitKilled
    | PolicyBroken
    | CoverLost
    | GoverningChanged
    | Cancelled
    | Closed
    | Failed
    | SealLost
)


@value
class Stream:
    """The first bytes of a stream, and length and digest of all of it."""

    kept: bytes
    total_bytes: int
    sha256: str  #: of the whole stream

    @property
    def truncated(self) -> bool:
        return self.total_bytes > len(self.kept)

    @property
    def consistent(self) -> bool:
        """Whether the stored bytes agree with length and digest."""
        kept = len(self.kept)
        if self.total_bytes > kept:
            return True
        return self.total_bytes == kept and sha256_bytes(self.kept) == self.sha256


@value
class Collected:
    """A file from the sandbox, by value: nothing refers to the tool's own copy."""

    name: str  #: as declared; for a file that is not, the last part of its path
    path: str
    kind: str  #: ``output_file`` or ``artifact``
    content: bytes
    sha256: str
    blake3: str
    type: str = "file"  #: as declared

    @property
    def size(self) -> int:
        return len(self.content)


@value
class NotCollected:
    """A declared or found file that was not collected, and why."""

    path: str
    kind: str
    reason: str  #: ``missing``, ``not a regular file``, ``over the total of 10485760 bytes`` …
    size: int | None = None


@value
class Enforced:
    """One line of the enforcement manifest."""

    limit: str
    requested: str
    mechanism: str
    enforced: bool
    peak: int | None = None
    tripped: bool = False


@value
class Denial:
    """Something that the tool tried and was denied, as the enforcing layer reported it."""

    #: ``fork``, ``thread``, ``network``; ``syscall``: the target is a known name;
    #: ``syscall_number``: a number that the tool chose; ``others``: all beyond the bound
    kind: str
    target: str
    time_ms: int  #: of the first time
    count: int = 1


#: The kind and the targets of a `Denial` of addresses without a route, which the kernel counts
#: without keeping them: where names can be reached, and where the tool has no network.
NETWORK = "network"
ADDRESS_LITERAL, NO_NETWORK = "address literal: no route", "no network: no route"
#: The beginnings of `Connection.refused` for a permitted host.
NOT_RESOLVED, NOT_CONNECTED = "name not resolved: ", "not connected: "


@value
class Connection:
    """One attempt to connect outside, as the deciding relay saw it."""

    host: str
    port: int  #: 0 for a name that was only looked up
    address: str  #: the one that was checked and connected to; "" when there was none
    time_ms: int
    sent: int = 0
    received: int = 0
    refused: str = ""  #: the reason; empty when connected
    count: int = 1  #: how often; more than 1 for a refused name only

    @property
    def kind(self) -> tuple[str, int, str, str]:
        """Equal for repetitions."""
        return self.host, self.port, self.address, self.refused

    @property
    def denied(self) -> bool:
        """Whether Actum refused it; false if the host was permitted and could not be reached."""
        return bool(self.refused) and not self.refused.startswith((NOT_RESOLVED, NOT_CONNECTED))


def network_denials(connections: Iterable[Connection]) -> tuple[Denial, ...]:
    """The refused ones as denials."""
    return tuple(
        Denial(
            kind=NETWORK,
            target=f"{item.host}:{item.port} ({item.refused})",
            time_ms=item.time_ms,
            count=item.count,
        )
        for item in connections
        if item.refused
    )


def later(before: Iterable[Connection], after: Iterable[Connection]) -> tuple[Connection, ...]:
    """The connections of `after` that are not in `before`, an earlier state of the same record."""
    known: dict[tuple[str, int, str, str], int] = {}
    for item in before:
        known[item.kind] = known.get(item.kind, 0) + item.count
    found = []
    for item in after:
        seen = min(item.count, known.get(item.kind, 0))
        known[item.kind] = known.get(item.kind, 0) - seen
        if item.count > seen:
            found.append(replace(item, count=item.count - seen))
    return tuple(found)


@value
class Workspace:
    """The state of an execution's changes to its writable folders."""

    state: str  #: unchanged, committed, discarded, held or conflict; direct
    mode: str = "transaction"  #: or direct: the tool wrote to the folders themselves
    created: int = 0
    modified: int = 0
    deleted: int = 0
    diff_sha256: str = ""  #: of the list of changes, with the digests before and after
    #: Paths that a person has to decide about, or why changes could not be compared; for direct
    #: changes, those that the tool could write and that decide what is executed later.
    why: tuple[str, ...] = ()
    request_id: str = ""  #: of the approval that the commit waits for
    left_out: tuple[str, ...] = ()  #: pipes, sockets and devices, which are never committed
    #: For direct changes: such paths that were covered, so that another program changed them.
    changed_by_host: tuple[str, ...] = ()
    covers_lost: tuple[str, ...] = ()  #: names that lost their cover while the tool ran
    compared: bool = (
        True  #: all such names were compared; direct changes of a large project may not
    )
    engine: str = ""  #: overlay, or copy if at least one of the folders was copied
    #: SHA-256 of the stored record of each attempt's changes (`record.json`); empty if none.
    records: tuple[str, ...] = ()


@value
class DiffSummary:
    """The changed paths, for the evidence record. The first of many are named."""

    state: str  #: as in `Workspace`; ``direct`` also for the changes of a work item so far
    created: int
    modified: int
    deleted: int
    sha256: str  #: of the whole list of changes, with the digests before and after
    files: tuple[Mapping[str, str], ...]  #: ``action`` and ``path``
    unnamed: int = 0  #: changes beyond those


#: For a call in a session: governing names are compared when the session ends.
NOT_COMPARED_YET = Workspace(state="direct", mode="direct", compared=False)


@value
class Capture:
    """Everything that one attempt returned."""

    ending: Ending
    stdout: Stream
    stderr: Stream
    collected: tuple[Collected, ...] = ()
    not_collected: tuple[NotCollected, ...] = ()
    enforcement: tuple[Enforced, ...] = ()
    denials: tuple[Denial, ...] = ()
    connections: tuple[Connection, ...] = ()
    duration_ms: int
    container_id: str | None = None
    workspace: Workspace | None = None  #: ``None``: nothing writable
    diff: DiffSummary | None = None  #: ``None``: nothing changed, or changes were not compared
    #: What was left after the runner's cleanup: ``()`` for nothing, ``None`` if it was not
    #: checked.
    leftovers: tuple[str, ...] | None = None
    #: Checks that, where it takes time: called last, before the record is closed.
    cleanup: Callable[[], tuple[str, ...]] | None = field(default=None, compare=False, repr=False)

    def left(self) -> tuple[str, ...] | None:
        """What the runner's cleanup left behind."""
        return self.leftovers if self.cleanup is None else self.cleanup()
