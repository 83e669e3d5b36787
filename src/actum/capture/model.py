"""What came back from one attempt, as frozen data: ending, streams, files, enforcement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from actum.contract.canonical import sha256_bytes
from actum.value import field, value


@value(kw_only=False)
class Exited:
    code: int


@value(kw_only=False)
class Signalled:
    """The tool died of a signal that Actum did not send."""

    number: int


@value(kw_only=False)
class DeadlinePassed:
    """Stopped at the wall-clock limit. `signal` is what finally ended it; 0: it exited itself."""

    signal: int


@value(kw_only=False)
class LimitKilled:
    """Killed for a limit that the kernel proved to be hit."""

    limit: str  #: ``memory_mb``, ``scratch``
    evidence: str  #: e.g. ``memory.oom_control oom_kill 0 -> 1``


@value(kw_only=False)
class PolicyBroken:
    """Killed for an attempt that has no innocent reading."""

    attempt: str  #: e.g. ``system call mount``


@value(kw_only=False)
class CoverLost:
    """Ended because a name that was covered inside was replaced on the host."""

    paths: tuple[str, ...]


@value(kw_only=False)
class GoverningChanged:
    """It ended as it did, and names that decide what is executed later differ afterwards.

    They were not covered, so the tool could write them.
    """

    paths: tuple[str, ...]
    exit_code: int | None
    signal: int | None
    lost: bool = False  #: a cover was lost as well


@value(kw_only=False)
class Cancelled:
    signal: int


@value(kw_only=False)
class Closed:
    """A tool kept running to be spoken with, ended by us when nobody needed it any more.

    `signal` is what finally ended it; 0: it exited itself.
    """

    signal: int


@value(kw_only=False)
class Failed:
    """The tool was spoken with, and answered that it failed, broke the protocol, or was gone."""

    reason: str
    transport: bool = False  #: no answer came: whether the call was carried out is not known
    untouched: bool = False  #: or known after all: it was gone before anything was asked of it


@value(kw_only=False)
class SealLost:
    """The host replaced an input file on which its sealed copy was mounted. The tool may have read
    other bytes than those that were digested."""

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
    """The first bytes of a stream, and the truth about all of it."""

    kept: bytes
    total_bytes: int
    sha256: str  #: of the whole stream, kept or not

    @property
    def truncated(self) -> bool:
        return self.total_bytes > len(self.kept)

    @property
    def consistent(self) -> bool:
        """Whether what is kept agrees with what is told of all of it."""
        kept = len(self.kept)
        if self.total_bytes > kept:
            return True
        return self.total_bytes == kept and sha256_bytes(self.kept) == self.sha256


@value
class Collected:
    """A file taken out of the sandbox, by value: nothing refers to where the tool left it."""

    name: str
    path: str
    kind: str  #: ``output_file`` or ``artifact``
    content: bytes
    sha256: str
    blake3: str

    @property
    def size(self) -> int:
        return len(self.content)


@value
class NotCollected:
    """A declared or found file that could not be taken, and why."""

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
    """Something the tool tried and did not get, as the enforcing layer reported it."""

    #: ``fork``, ``thread``, ``network``; ``syscall``: the target is a name that we know;
    #: ``syscall_number``: a number that the tool chose; ``others``: all that found no room
    kind: str
    target: str
    time_ms: int  #: of the first time
    count: int = 1


@value
class Connection:
    """One attempt to reach something outside, as the relay that decided saw it."""

    host: str
    port: int  #: 0 for a name that was only asked for
    address: str  #: the one that was judged and connected to; "" when there was none
    time_ms: int
    sent: int = 0
    received: int = 0
    refused: str = ""  #: why not; empty when it was made


@value
class Workspace:
    """What became of an execution's changes to the folders that it may write."""

    state: str  #: unchanged, committed, discarded, held or conflict; direct
    mode: str = "transaction"  #: or direct: the tool wrote to the folders themselves
    created: int = 0
    modified: int = 0
    deleted: int = 0
    diff_sha256: str = ""  #: of the list of changes, with the digests before and after
    #: Paths that a person has to decide about, or why changes could not be compared; of direct
    #: changes, those that the tool could write and that decide what is executed later.
    why: tuple[str, ...] = ()
    request_id: str = ""  #: of the approval that the commit waits for
    left_out: tuple[str, ...] = ()  #: pipes, sockets and devices, which are never taken over
    #: Of direct changes: such paths that were covered, so that another program has changed them.
    changed_by_host: tuple[str, ...] = ()
    covers_lost: tuple[str, ...] = ()  #: names whose cover was lost while the tool ran
    compared: bool = (
        True  #: all such names were compared; direct changes of a large project may not
    )
    engine: str = ""  #: overlay, or copy if at least one of the folders was copied
    #: SHA-256 of what is kept of each attempt's changes (`record.json`); empty where nothing is.
    records: tuple[str, ...] = ()


#: Of a call to a tool that is kept running: what governs is compared when that ends.
NOT_COMPARED_YET = Workspace(state="direct", mode="direct", compared=False)


@value
class Capture:
    """Everything one attempt left behind."""

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
    #: What was still there after the runner had cleaned up and looked: ``()`` is "nothing",
    #: ``None`` is "nobody looked".
    leftovers: tuple[str, ...] | None = None
    #: How to find that out, where it takes its time: asked last, before the record is closed.
    clearing: Callable[[], tuple[str, ...]] | None = field(default=None, compare=False, repr=False)

    def left(self) -> tuple[str, ...] | None:
        """What is left behind, once the runner has cleaned up."""
        return self.leftovers if self.clearing is None else self.clearing()
