"""One execution's changes to the folders it may write: kept apart, then committed, held or dropped.

Each writable folder is the read-only lower layer of an overlay (jail/opener.c); every change goes
to an upper layer in the home, on the same file system where that is possible. Where a file system
takes no overlay, the tool works on a copy of the folder. When the last process of the tool is gone,
the host compares the two and decides.

    begin    folders for the layers; the moment after which a change below is another program's
    look     what differs
    commit   stage, intent, apply, record: a process that is killed before the intent has changed
             nothing, and any later command finishes what an intent says. Nothing is synced: a power
             cut can lose the newest changes, as it can without a transaction
    hold     the layers stay, for a person to decide
    discard  they go
    retire   what was recorded goes: first out of sight, then on record, then from the disk

Commits of one home happen one after the other, and each looks again under the lock. Two executions
that change the same path are found that way; the second one is a conflict.
Proved by tests/integration/test_transactions.py and tests/crash/test_transaction_moments.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actum import kernel, removal
from actum.contract.call import SealedInput
from actum.contract.canonical import sha256_bytes, sha256_json
from actum.contract.levels import is_within
from actum.errors import Fault, Refused
from actum.runners.layers import LAYERS, claim, is_claimed, make_layers
from actum.sandbox.identity import TOOL_ID
from actum.store.whole_file import write_whole
from actum.value import value
from actum.workspace import commit, files, upper
from actum.workspace.commit import Step
from actum.workspace.copies import COPY, COPY_LIST, Bounds, copy_name, own
from actum.workspace.placed import Placed, place
from actum.workspace.tree import (
    Action,
    Change,
    Delta,
    Entry,
    Kind,
    content_digest,
    name_of,
    parent_of,
    shown,
    unshown,
)
from actum.workspace.upper import Found

if TYPE_CHECKING:
    from actum.workspace.copied import Start

_INTENT, _RECORD, _BACKWARD = "intent.json", "record.json", "backward.json"
_STAGED = ("new", "after", "old")
_SIZE = "kept-"
_RETIRED = ".retired-"  #: begins the name of a folder that is on its way out
_SECRETS = "secrets"
_TREES = (*LAYERS, COPY, COPY_LIST)  #: what goes when a transaction is decided
#: New content up to this size is copied for `actum diff`; of larger files the present one is read.
_COPIED_BYTES = 262_144
_MOST_SHOWN_BYTES = 4 << 20
_OVERLAY_MARKS = ("trusted.overlay.", "user.overlay.")


@value
class Layer:
    """Where the changes of one writable folder go."""

    grant: str
    folder: str
    #: What is in the upper layer before the tool starts: sealed inputs and the way to them.
    placed: tuple[Placed, ...] = ()

    @property
    def copy(self) -> str:
        return f"{self.folder}/{COPY}"

    @property
    def is_copy(self) -> bool:
        """Whether the tool works on a copy of the folder, and not on an overlay."""
        return os.path.isdir(self.copy)

    @property
    def tree(self) -> str:
        """The folder that holds what the tool has written."""
        return self.copy if self.is_copy else f"{self.folder}/upper"


@value
class Changes:
    """What an execution changed, folder by folder."""

    layers: tuple[tuple[Layer, Found], ...]

    def paths(self) -> Iterator[tuple[str, Change]]:
        for layer, found in self.layers:
            for change in found.delta:
                yield joined_path(layer.grant, change.path), change

    @property
    def overtaken(self) -> tuple[str, ...]:
        return tuple(
            joined_path(layer.grant, path)
            for layer, found in self.layers
            for path in found.overtaken
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(
            joined_path(layer.grant, path)
            for layer, found in self.layers
            for path in found.left_out
        )

    def count(self, action: Action) -> int:
        return sum(change.action is action for _path, change in self.paths())

    def document(self) -> list[dict[str, Any]]:
        return [
            {"grant": layer.grant, "changes": [_document(change) for change in found.delta]}
            for layer, found in self.layers
        ]

    @property
    def sha256(self) -> str:
        return sha256_json(self.document())

    def __bool__(self) -> bool:
        return any(found.delta for _layer, found in self.layers)


class Transaction:
    """The layers of one attempt, and what becomes of them."""

    def __init__(
        self,
        folder: Path,
        layers: tuple[Layer, ...],
        since_ns: int,
        *,
        waited: bool = False,
        over: bool = False,
    ) -> None:
        """`waited`: it was recorded, and is decided by another process than the tool's. `over`:
        what another program has changed since is no obstacle."""
        self.folder = folder
        self.layers = layers
        self.record_sha256 = ""  #: of the record, once there is one
        self._since_ns = time.time_ns() if over else since_ns
        self._waited = waited
        self._over = over
        self._starts: dict[str, Start] = {}

    @property
    def is_decided(self) -> bool:
        """Whether changes are being brought in: this can only be finished."""
        return (self.folder / _INTENT).exists()

    @classmethod
    def begin(
        cls,
        home: Path,
        name: str,
        grants: Iterable[str],
        sealed: Iterable[SealedInput] = (),
        *,
        secrets: bool = False,
    ) -> Transaction:
        """Make the layers, and put the sealed inputs among `grants` into them.

        `secrets`: the tool is given some. What it wrote is not copied then.
        """
        tops = [(grant, _judged(grant)) for grant in grants]
        folder = _folder(home) / name
        claim(folder)
        if secrets:
            (folder / _SECRETS).touch(mode=0o600)
        layers = []
        try:
            for number, (grant, top) in enumerate(tops):
                room = folder / str(number)
                make_layers(room, top)
                inputs = [each for each in sealed if is_within(each.path, grant)]
                placed = place(inputs, grant, room / "upper") if inputs else ()
                layers.append(Layer(grant=grant, folder=str(room), placed=placed))
        except BaseException:
            removal.remove(folder)
            raise
        return cls(folder, tuple(layers), time.time_ns())

    def copy(self, layer: Layer, covered: tuple[str, ...], bounds: Bounds) -> None:
        """Let the tool work on a copy of a folder. Before it starts, and before `wait`.

        `covered` are paths that it can neither read nor write.
        """
        from actum.workspace import copied  # for few file systems

        room = Path(layer.folder)
        start = copied.make(layer.grant, room, covered, bounds)
        self._starts[layer.folder] = copied.with_inputs(start, layer.placed, room)
        self._since_ns = time.time_ns()

    @property
    def engine(self) -> str:
        """``copy`` if the tool works on a copy of at least one folder, else ``overlay``."""
        return "copy" if self._starts else "overlay"

    def _start_of(self, layer: Layer) -> Start:
        from actum.workspace.copied import Start

        found = self._starts.get(layer.folder)
        return Start.read(Path(layer.folder)) if found is None else found

    def wait(self) -> None:
        """Return when the clock of file systems, which ticks every few milliseconds, has passed the
        beginning: what is changed from now on has a later time, and is found."""
        _await_clock(self._since_ns)

    def look(self) -> Changes:
        """What differs now. Only when no process of the tool is left."""
        return Changes(layers=tuple((layer, self._look_at(layer)) for layer in self.layers))

    def _look_at(self, layer: Layer) -> Found:
        with _open(layer.tree) as above, _open_base(layer) as base:
            if not layer.is_copy:
                return upper.changes(above, base, self._since_ns, layer.placed, over=self._over)
            from actum.workspace import copied

            return copied.changes(above, base, self._start_of(layer), over=self._over)

    def _is_untouched(self) -> bool:
        """Whether the upper layers hold nothing at all. A copy has to be compared."""
        for layer in self.layers:
            if layer.is_copy:
                return False
            above = f"{layer.folder}/upper"
            top, below = os.stat(above), _base_of(layer)
            if files.permissions(top) != files.permissions(below) or os.listdir(above):
                return False
        return True

    def commit(
        self,
        judge: Callable[[Changes], tuple[str, ...]],
        *,
        conflicts: Callable[[Changes], tuple[str, ...]] = lambda changes: changes.overtaken,
        tell: Tell = lambda _kept: None,
    ) -> tuple[Changes, str]:
        """Look under the lock and bring the changes in, unless something stands against it.

        Returns the changes and the state: unchanged, committed, conflict or held. `judge` names
        the paths that a person has to decide about, `conflicts` those that another program has
        changed. `tell` puts a commit on record, perhaps twice if this process is killed.
        """
        if not self._waited and self._is_untouched():  # no lock for what most executions are
            self.discard()
            return Changes(layers=()), "unchanged"
        with locked(self.folder.parent):
            changes = self.look()
            if not changes:
                # Or the same is there already.
                retire(self.folder, tell) if self._waited else self.discard()
                return changes, "unchanged"
            # First: what other programs have changed meanwhile is no way around an approval.
            if held := judge(changes):
                self._hold(changes, "held", held)
                return changes, "held"
            if overtaken := conflicts(changes):
                self._hold(changes, "conflict", overtaken)
                return changes, "conflict"
            self._bring_in(changes, tell)
        return changes, "committed"

    def discard(self) -> None:
        removal.remove(self.folder)

    def abandon(self) -> None:
        """Drop the layers, unless a commit has begun, or a person has to decide.

        What cannot be removed now (a process may have no descriptor left) is removed by recovery.
        """
        if not self.is_decided and not (self.folder / _RECORD).exists():
            with contextlib.suppress(removal.RemovalRefused, OSError):
                self.discard()

    def _hold(self, changes: Changes, state: str, why: tuple[str, ...]) -> None:
        if self._waited:
            return  # it waits as before, with the record that is signed
        for folder, start in self._starts.items():
            start.write(Path(folder))
        text = self._record(changes, state, why, ())
        write_whole(self.folder / _RECORD, text, synced=False)
        self.record_sha256 = sha256_bytes(text)

    def _bring_in(self, changes: Changes, tell: Tell) -> None:
        rooms, backward = [], []
        for layer, found in changes.layers:
            room = Path(layer.folder)
            for name in _STAGED if self._waited else ():
                removal.remove_part(room, name)  # of a process that was killed on the way
            _stage(found.delta, layer, room, copied=self._waited)
            staged = commit.keep(found.delta, Path(layer.grant), room)
            text = json.dumps([step.document() for step in staged.backward]).encode()
            (room / _BACKWARD).write_bytes(text)
            backward.append(sha256_bytes(text))
            rooms.append((layer.grant, room.name, staged.forward, staged.backward))
        _note_size(self.folder, [Path(layer.folder) for layer in self.layers])
        record = self._record(changes, "committed", (), backward)
        self.record_sha256 = sha256_bytes(record)
        _write_intent(self.folder, record, rooms)
        _carry_through(self.folder, tell, again=False)

    def _record(
        self, changes: Changes, state: str, why: tuple[str, ...], backward: Sequence[str]
    ) -> bytes:
        record = {
            "v": 1,
            "home": _home_of(self.folder),
            "state": state,
            "why": list(why),
            "since_ns": self._since_ns,
            "layers": [
                [layer.grant, os.path.basename(layer.folder)] for layer, _ in changes.layers
            ],
            "placed": [
                [[shown(each.path), *each.entry_document()] for each in layer.placed]
                for layer, _ in changes.layers
            ],
            "changes": changes.document(),
            "backward_sha256": list(backward),
        }
        return json.dumps(record).encode()


def _judged(grant: str) -> os.stat_result:
    """The folder that the policy judged, before anything is made for it."""
    try:
        return os.stat(grant, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Refused(
            "PATH_CHANGED",
            f"{grant} is no longer the folder that was checked.",
            remedy="Run again once nothing moves the paths of the sandbox.",
        ) from error


def _folder(home: Path) -> Path:
    folder = home / "transactions"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


_COARSE = 5  # CLOCK_REALTIME_COARSE


def await_later_changes() -> None:
    """Return when what is changed from now on has a later time than what was changed before."""
    _await_clock(time.time_ns())


def _await_clock(since_ns: int) -> None:
    while (left := since_ns - time.clock_gettime_ns(_COARSE)) >= 0:
        time.sleep(left / 1e9 + 0.0005)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _open(folder: str) -> Iterator[int]:
    descriptor = kernel.open_exact(folder, files.FOLDER_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _moved(layer: Layer, error: OSError) -> Fault:
    return Fault(
        f"{layer.grant} was moved or removed while the tool ran, so what the tool changed cannot be"
        f" brought in: {error.strerror}.",
        remedy="Run again once nothing moves the folder.",
    )


def _base_of(layer: Layer) -> os.stat_result:
    try:
        return os.stat(layer.grant, follow_symlinks=False)
    except OSError as error:
        raise _moved(layer, error) from error


@contextlib.contextmanager
def _open_base(layer: Layer) -> Iterator[int]:
    """The folder that the layer was laid over. The tool has run, so this is no refusal."""
    try:
        descriptor = kernel.open_exact(layer.grant, files.FOLDER_FLAGS)
    except OSError as error:
        raise _moved(layer, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# -- the intent ----------------------------------------------------------------------------------


def _stage(delta: Delta, layer: Layer, room: Path, *, copied: bool) -> None:
    """Move or copy what is new out of the upper layer, as it will be: owner, mode and no marks.

    Names of one file stay names of one file.
    """
    new, after = room / "new", room / "after"
    copied_bytes = -1 if (room.parent / _SECRETS).exists() else _COPIED_BYTES
    new.mkdir(mode=0o700)
    after.mkdir(mode=0o700)
    top = _base_of(layer)
    staged: dict[tuple[int, int], bytes] = {}
    with (
        _open(layer.tree) as above,
        _open(str(new)) as target,
        _open(str(after)) as copies,
    ):
        for number, change in enumerate(delta):
            entry = change.after
            if entry is None or entry.kind not in (Kind.FILE, Kind.LINK):
                continue
            name = b"%d" % number
            folder = _open_to_take(parent_of(change.path), above)
            try:
                look = os.stat(name_of(change.path), dir_fd=folder, follow_symlinks=False)
                first = staged.setdefault((look.st_dev, look.st_ino), name)
                if first != name:
                    # It has its owner already, and owners change places: twice would be never.
                    os.link(
                        first, name, src_dir_fd=target, dst_dir_fd=target, follow_symlinks=False
                    )
                    continue
                if copied:
                    with files.opened_up(name_of(change.path), folder, look):
                        copy_name(name_of(change.path), look, folder, name, target)
                else:
                    os.rename(name_of(change.path), name, src_dir_fd=folder, dst_dir_fd=target)
            finally:
                os.close(folder)
            if os.geteuid() == 0:
                os.chown(name, *_outside(look, top), dir_fd=target, follow_symlinks=False)
            if entry.kind is Kind.FILE:
                os.chmod(name, entry.mode | 0o600, dir_fd=target)
                _strip(name, target)
                if look.st_size <= copied_bytes:
                    copy_name(name, look, target, name, copies, own(look))
                # Last, because its owner may have no right to read it any more. And never
                # set-user-id or set-group-id: a mode that a tool chose meets another owner here.
                os.chmod(name, entry.mode, dir_fd=target)


def _outside(look: os.stat_result, top: os.stat_result) -> tuple[int, int]:
    """Whose a file of a layer is in the project. Asked again for a second name of the same file,
    the answer stays the same."""
    uid, gid = own(look)
    return top.st_uid if uid == TOOL_ID else uid, top.st_gid if gid == TOOL_ID else gid


def _open_to_take(path: bytes, above: int) -> int:
    """A folder of the layer out of which names are moved. An ordinary user needs rights for that
    on it and on every folder above; nobody needs this layer afterwards."""
    if os.geteuid() == 0:
        return files.open_folder(path, above)
    folder = os.open(b".", files.FOLDER_FLAGS, dir_fd=above)
    for part in (b".", *path.split(b"/")) if path else (b".",):
        handle = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        os.close(folder)
        try:
            mode = stat.S_IMODE(os.fstat(handle).st_mode)
            if mode & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{handle}", mode | 0o700)
            folder = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY)
        finally:
            os.close(handle)
    return folder


def _strip(name: bytes, folder: int) -> None:
    """Take off what the overlay has written down about a file for itself."""
    descriptor = os.open(name, files.FILE_FLAGS, dir_fd=folder)
    try:
        for mark in os.listxattr(descriptor):
            if mark.startswith(_OVERLAY_MARKS):
                os.removexattr(descriptor, mark)
    finally:
        os.close(descriptor)


#: States in which a person has to decide.
WAITING = ("held", "conflict")

#: Of one folder: its path, its room, the steps to be done, and what was there before them.
_Room = tuple[str, str, Iterable[Step], Iterable[Step]]


def _write_intent(folder: Path, record: bytes, rooms: Iterable[_Room]) -> None:
    body = {
        "v": 1,
        "home": _home_of(folder),
        "record": record.decode(),
        "rooms": [
            {
                "base": base,
                "room": room,
                "steps": [step.document() for step in steps],
                "before": [step.document() for step in before],
            }
            for base, room, steps, before in rooms
        ],
    }
    text = json.dumps(body, sort_keys=True)
    document = {"body": text, "sha256": sha256_bytes(text.encode())}
    write_whole(folder / _INTENT, json.dumps(document).encode(), synced=False)


def _intent(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / _INTENT).read_bytes())
    if sha256_bytes(document["body"].encode()) != document["sha256"]:
        raise commit.WorkspaceDamaged(
            f"{folder / _INTENT} is not what was written there.",
            remedy="Look at the project; restore what is missing from a backup.",
        )
    body: dict[str, Any] = json.loads(document["body"])
    return body


def _carry_through(folder: Path, tell: Tell, *, again: bool) -> None:
    """Do what the intent says, and keep what an undo and a diff need. The intent goes last: until
    then the next command does it again."""
    body = _intent(folder)
    for each in body["rooms"]:
        room = folder / each["room"]
        if not (room / "new").exists():
            continue  # applied by a process that was killed afterwards
        steps: Iterable[Step] = map(Step.read, each["steps"])
        with _open(each["base"]) as base:
            if again:
                steps = commit.left_to_do(steps, map(Step.read, each["before"]), base, room)
            commit.apply(steps, base, room / "new", synced=False)
        removal.remove_part(room, "new")
    for each in body["rooms"]:
        for tree in _TREES:
            removal.remove_part(folder / each["room"], tree)
    record = body["record"].encode()
    write_whole(folder / _RECORD, record, synced=False)
    tell(Kept(folder, record))
    os.unlink(folder / _INTENT)


def retire(folder: Path, tell: Tell) -> None:
    """Remove a transaction that was recorded."""
    away = folder.parent / f"{_RETIRED}{folder.name}"
    os.rename(folder, away)
    _retire(away, tell)


def _retire(away: Path, tell: Tell) -> None:
    with contextlib.suppress(FileNotFoundError):  # a removal that was cut short after that
        tell(Kept(away, (away / _RECORD).read_bytes()))
    with contextlib.suppress(removal.RemovalRefused, OSError):
        removal.remove(away)


def recover(home: Path, keep: Keep | None = None, tell: Tell = lambda _kept: None) -> int:
    """Finish every commit that a killed process has begun, and drop what it had not yet decided,
    and the layers in which its interpreters waited.

    Of what is over only the newest is kept. `tell` puts on record what is finished or removed.
    Returns how many transactions were finished.
    """
    finished = 0
    transactions = home / "transactions"
    if not transactions.is_dir():
        return 0
    with locked(transactions):
        over = []
        # Many, and looked at by every command: plain calls, few of them.
        for name in os.listdir(transactions):
            folder = transactions / name
            try:
                names = set(os.listdir(folder))
            except (NotADirectoryError, FileNotFoundError):  # the second: dropped this moment
                continue
            if name.startswith(_RETIRED):
                _retire(folder, tell)
            elif _INTENT in names:
                # Commits and undos hold the lock, so none of them is at work now. In a copy of a
                # project the intent is about the original, which finishes it.
                if _intent(folder)["home"] == _home_of(folder):
                    _carry_through(folder, tell, again=True)
                    finished += 1
            elif _RECORD in names:
                if not os.path.lexists(f"{folder}/0/upper"):
                    for room in filter(str.isdecimal, names):
                        # Staged by an undo that was killed before its intent.
                        if os.path.lexists(f"{folder}/{room}/new"):
                            removal.remove_part(folder / room, "new")
                    over.append((os.stat(folder / _RECORD).st_mtime_ns, name, _kept_bytes(names)))
            elif not is_claimed(folder):
                # The remover itself refuses a folder that is neither marked nor empty.
                with contextlib.suppress(removal.RemovalRefused, OSError):
                    removal.remove(folder)
        if keep is not None:
            for name in keep.surplus(sorted(over, reverse=True)):
                retire(transactions / name, tell)
    return finished


@value
class Keep:
    """How much is kept of transactions that are over, for `actum diff` and `actum undo`."""

    count: int
    size_bytes: int

    def surplus(self, newest_first: Iterable[tuple[int, str, int]]) -> Iterator[str]:
        """Names of those that are too many, or too large together with all newer ones."""
        total = 0
        for number, (_time, name, size) in enumerate(newest_first):
            total += size
            if number >= self.count or total > self.size_bytes:
                yield name


def _kept_bytes(names: Iterable[str]) -> int:
    """What a transaction has kept, by the name of an empty file: see `_note_size`."""
    return sum(int(name[len(_SIZE) :]) for name in names if name.startswith(_SIZE))


def _note_size(folder: Path, rooms: Iterable[Path]) -> None:
    """Write down, as the name of an empty file, how much content is kept. A listing shows it."""
    for stale in folder.glob(f"{_SIZE}*"):  # of a process that was killed on the way
        stale.unlink()
    size = 0
    for room in rooms:
        for part in ("old", "after"):
            with os.scandir(room / part) as entries:
                size += sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    (folder / f"{_SIZE}{size}").touch(mode=0o600)


# -- what is kept of it --------------------------------------------------------------------------


def _home_of(folder: Path) -> str:
    """The home that a transaction's folder is in."""
    return str(folder.parent.parent)


def joined_path(grant: str, path: bytes) -> str:
    return f"{grant}/{shown(path)}" if path else grant


def _document(change: Change) -> dict[str, Any]:
    return {
        "path": shown(change.path),
        "action": change.action.value,
        "before": _entry_document(change.before),
        "after": _entry_document(change.after),
    }


def _entry_document(entry: Entry | None) -> list[Any] | None:
    return None if entry is None else [entry.kind.value, entry.mode, entry.digest.hex()]


class Kept:
    """A transaction that is over, or waits for a person."""

    def __init__(self, folder: Path, text: bytes) -> None:
        record: Mapping[str, Any] = json.loads(text)
        self.folder = folder
        self.name = folder.name.removeprefix(_RETIRED)
        self.is_retired = folder.name != self.name
        self.record_sha256 = sha256_bytes(text)
        self.state: str = record["state"]
        self.why: tuple[str, ...] = tuple(record["why"])
        self.changes: list[Mapping[str, Any]] = record["changes"]
        self._record = record
        self._layers: list[tuple[str, str]] = [(grant, room) for grant, room in record["layers"]]
        self._placed = [
            tuple(Placed.read(unshown(path), rest) for path, *rest in placed)
            for placed in record.get("placed", [[]] * len(self._layers))
        ]
        self._since_ns: int = record["since_ns"]
        execution, _, attempt = self.name.rpartition("-")
        self.execution_id = execution
        self.attempt = int(attempt) if attempt.isdecimal() else 0

    @property
    def diff_sha256(self) -> str:
        return sha256_json(self.changes)

    @property
    def waits(self) -> bool:
        """Whether a person has to decide."""
        return self.state in WAITING

    @property
    def begun_at(self) -> float:
        """When the tool was started, in seconds since the epoch."""
        return self._since_ns / 1e9

    @property
    def size(self) -> int:
        """The bytes that it takes on the disk."""
        return sum(
            os.lstat(os.path.join(where, name)).st_blocks * 512
            for where, folders, names in os.walk(self.folder)
            for name in (*folders, *names)
        )

    def decide(
        self,
        *,
        commit_it: bool,
        over: bool = False,
        conflicts: Callable[[Changes], tuple[str, ...]] = lambda changes: changes.overtaken,
        tell: Tell = lambda _kept: None,
    ) -> str:
        """A person's decision about a transaction that was held: bring it in, or drop it.

        `over`: also over what other programs have changed since.
        """
        if not self.waits:
            raise Refused(
                "TRANSACTION_DECIDED",
                f"{self.name}: this transaction is {self.state}; there is nothing to decide.",
                remedy="`actum diff` without an ID lists those that wait.",
            )
        if not commit_it:
            with locked(self.folder.parent):
                self._require_kept()
                retire(self.folder, tell)
            return "discarded"
        self._require_here()

        def judge(changes: Changes) -> tuple[str, ...]:
            self._require_kept()
            if _wanted(changes.document()) != _wanted(self.changes):
                raise Refused(
                    "CHANGES_DIFFER",
                    f"{self.name} does not hold the changes that were shown.",
                    remedy="`actum diff ID --discard` drops them; run the tool again.",
                )
            return ()

        transaction = Transaction(
            self.folder,
            tuple(
                Layer(grant=grant, folder=str(self.folder / room), placed=placed)
                for (grant, room), placed in zip(self._layers, self._placed, strict=True)
            ),
            self._since_ns,
            waited=True,
            over=over,
        )
        return transaction.commit(judge, conflicts=conflicts, tell=tell)[1]

    def undo(self, tell: Tell = lambda _kept: None) -> None:
        """Bring back what was there before. Refuses if one of the paths was changed since."""
        if self.state != "committed":
            raise Refused(
                "TRANSACTION_NOT_COMMITTED",
                f"{self.name}: this transaction is {self.state}; there is nothing to undo.",
                remedy="Only changes that were committed can be undone.",
            )
        self._require_here()
        with locked(self.folder.parent):
            self._require_kept()
            rooms: list[_Room] = []
            for number, (grant, room) in enumerate(self._layers):
                document = self.changes[number]
                _require_unchanged(grant, document["changes"])
                folder = self.folder / room
                steps = self._backward(number, folder)
                removal.remove_part(folder, "new")  # of a process that was killed on the way
                commit.stage_backward(steps, folder / "old", folder / "new")
                rooms.append((grant, room, steps, _forward(document["changes"])))
            record = json.dumps({**self._record, "state": "undone"}).encode()
            _write_intent(self.folder, record, rooms)
            _carry_through(self.folder, tell, again=False)

    def _backward(self, number: int, folder: Path) -> tuple[Step, ...]:
        if (
            sha256_bytes((folder / _BACKWARD).read_bytes())
            != self._record["backward_sha256"][number]
        ):
            raise Refused(
                "CHANGES_DIFFER",
                f"{folder / _BACKWARD} is not what was written there.",
                remedy="Nothing was changed. `actum verify --all` tells what else was changed.",
            )
        return commit.backward_steps(folder)

    def _require_kept(self) -> None:
        """Under the lock: another process may have decided, undone or removed it meanwhile."""
        try:
            found = sha256_bytes((self.folder / _RECORD).read_bytes())
        except FileNotFoundError:
            found = ""
        if found != self.record_sha256:
            raise Refused(
                "TRANSACTION_DECIDED",
                f"{self.name} was decided, undone or removed by another process meanwhile.",
                remedy="`actum diff` lists the transactions as they are now.",
            )

    def _require_here(self) -> None:
        """Its paths are absolute: in a copy of the project they lead to the original."""
        if self._record["home"] != _home_of(self.folder):
            raise Refused(
                "TRANSACTION_ELSEWHERE",
                f"{self.name} is a transaction of another folder ({self._record['home']}): this"
                " project was copied or moved since.",
                remedy="Nothing was changed. Decide it in the original; here, `actum diff ID"
                " --discard` drops changes that wait.",
            )

    def contents(self, grant: str, number: int) -> tuple[bytes | None, bytes | None]:
        """What a file held before and after; ``None`` for what is not there or was not kept."""
        room = self.folder / dict(self._layers)[grant]
        change = next(each for each in self.changes if each["grant"] == grant)["changes"][number]
        name = os.fsdecode(unshown(change["path"]))
        digests = [side[2] if side else None for side in (change["before"], change["after"])]
        after = _content(room / "after" / str(number), digests[1])
        if after is None and change["after"]:
            top = Layer(grant=grant, folder=str(room)).tree if self.waits else grant
            after = _content(Path(top) / name, change["after"][2])
        before = _content(room / "old" / str(number), digests[0])
        if before is None and change["before"]:
            before = _content(Path(grant) / name, change["before"][2])
        return before, after

    @classmethod
    def find(cls, home: Path, name: str) -> Kept | None:
        folder = home / "transactions" / name
        if os.path.basename(name) != name or name.startswith(_RETIRED):
            return None
        try:
            return cls(folder, (folder / _RECORD).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None

    @classmethod
    def all(cls, home: Path) -> Iterator[Kept]:
        """Every one, the newest last."""
        found = [kept for name in cls.names(home) if (kept := cls.find(home, name))]
        yield from sorted(found, key=lambda kept: (kept._since_ns, kept.name))

    @staticmethod
    def names(home: Path) -> list[str]:
        """What may be a transaction, and is not looked at."""
        folder = home / "transactions"
        return sorted(os.listdir(folder)) if folder.is_dir() else []


#: Puts on record what became of a transaction.
Tell = Callable[[Kept], None]


def _wanted(changes: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, Any]]:
    """What a list of changes would bring about, whatever is there now."""
    return [
        (each["grant"], change["path"], change["after"])
        for each in changes
        for change in each["changes"]
    ]


def _content(path: Path, digest: str | None) -> bytes | None:
    """A file's bytes, through no link; ``None`` if it is not there, or not what the digest says."""
    if digest is None:
        return None
    try:
        descriptor = os.open(path, files.FILE_FLAGS)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(_MOST_SHOWN_BYTES)
    return content if content_digest(content).hex() == digest else None


def _require_unchanged(grant: str, changes: Iterable[Mapping[str, Any]]) -> None:
    with _open(grant) as base:
        for change in changes:
            path = unshown(change["path"])
            if _entry_document(files.entry_at(path, base)) != change["after"]:
                raise Refused(
                    "UNDO_CHANGED",
                    f"{joined_path(grant, path)} was changed after this execution.",
                    remedy="Nothing was changed. `actum diff ID` shows what to put back by hand.",
                )


def _forward(changes: Iterable[Mapping[str, Any]]) -> Iterator[Step]:
    """What is there now, before an undo: only paths and digests count."""
    for change in changes:
        after = change["after"]
        yield Step(
            path=unshown(change["path"]),
            kind=Kind(after[0]) if after else None,
            digest=after[2] if after else "",
        )
