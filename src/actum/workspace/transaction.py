"""One execution's changes to the folders it may write: kept apart, then committed, held or dropped.

Each writable folder is the read-only lower layer of an overlay (jail/opener.c). Every change goes
to an upper layer in the home, on the same file system where that is possible. Where a file system
does not support an overlay, the tool works on a copy of the folder. When the last process of the
tool is gone, the host compares the two and decides.

    begin    make the folders of the layers; note the time after which a change of the lower folder
             is another program's
    look     compare
    commit   stage (`staging`), intent, apply, record (`intent`): a process that is killed before
             the intent has changed nothing, and any later command finishes an intent. Nothing is
             synced: a power cut can lose the newest changes, as it can without a transaction
    hold     the layers stay until a person decides (`kept_changes`)
    discard  the layers are removed
    retire   the record is removed (`retention`): first renamed, then logged, then deleted

Commits of one home happen one after the other, and each compares again under the lock. This finds
two executions that change the same path; the second one is a conflict.
Proved by tests/security/transactions, tests/integration/test_twenty_at_once.py and
tests/crash/test_transaction_moments.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from actum import removal
from actum.contract.call import SealedInput
from actum.contract.canonical import sha256_bytes
from actum.contract.levels import is_within
from actum.errors import Refused
from actum.evidence.records.work_names import BACKWARD
from actum.runners.layers import claim, give_mode, make_layers, rename_claimed
from actum.store.whole_file import write_whole
from actum.workspace import commit, files, intent, staging, upper
from actum.workspace.changes import Changes
from actum.workspace.copies import Bounds
from actum.workspace.grant_layer import Layer, base_of, opened, opened_base
from actum.workspace.intent import INTENT, Part, locked
from actum.workspace.layer_folders import LayerFolders
from actum.workspace.placed import place
from actum.workspace.retention import note_size, retire
from actum.workspace.transaction_record import RECORD, Tell, home_of
from actum.workspace.tree import shown
from actum.workspace.upper import Found

if TYPE_CHECKING:
    from actum.workspace.copied import Start

_COARSE = 5  # CLOCK_REALTIME_COARSE
_SHORTEST_NAP_NS = 50_000  # the tick is due; the kernel may be a little late


class Transaction:
    """The layers of one attempt, from their creation to the decision."""

    def __init__(
        self,
        folder: Path,
        layers: tuple[Layer, ...],
        since_ns: int,
        *,
        waited: bool = False,
        over: bool = False,
        beside: bool = False,
        folders: LayerFolders | None = None,
    ) -> None:
        """`waited`: it was recorded as held, and another process decides. `over`: a change by
        another program since then is no conflict. `beside`: the layers are on the file system of
        the folders."""
        self.folder = folder
        self.layers = layers
        self.record_sha256 = ""  #: of the record, once it is written
        self._since_ns = time.time_ns() if over else since_ns
        self._waited = waited
        self._over = over
        self._beside = beside
        self._folders = folders
        self._starts: dict[str, Start] = {}

    @property
    def is_decided(self) -> bool:
        """Whether a commit has begun: it can only be finished."""
        return (self.folder / INTENT).exists()

    @classmethod
    def begin(
        cls,
        home: Path,
        name: str,
        grants: Iterable[str],
        sealed: Iterable[SealedInput] = (),
        *,
        secrets: bool = False,
        folders: LayerFolders | None = None,
    ) -> Transaction:
        """Make the layers, and put the sealed inputs among `grants` into them.

        `secrets`: the tool gets secrets. New content is not copied for `actum diff` then.
        `folders` has layers that were made ahead.
        """
        # Before the layers are made: `wait` then waits less. The tool sees a change that another
        # program makes meanwhile, and it still counts as a conflict.
        since_ns = time.time_ns()
        tops = [(grant, _judged(grant)) for grant in grants]
        folder = _folder(home) / name
        made = None if folders is None else folders.take(len(tops))
        try:
            if made is not None:
                rename_claimed(made, folder)
        except FileNotFoundError:  # removed by another program
            made = None
        if made is None:
            claim(folder)
        layers = []
        try:
            if secrets:
                (folder / staging.SECRETS).touch(mode=0o600)
            for number, (grant, top) in enumerate(tops):
                layer = folder / str(number)
                if made is None:
                    make_layers(layer, top)
                else:
                    give_mode(layer, top)
                inputs = [each for each in sealed if is_within(each.path, grant)]
                placed = place(inputs, grant, layer / "upper") if inputs else ()
                layers.append(Layer(grant=grant, folder=str(layer), placed=placed))
        except BaseException:
            removal.remove(folder)
            raise
        device = os.stat(folder).st_dev
        beside = all(top.st_dev == device for _grant, top in tops)
        return cls(folder, tuple(layers), since_ns, beside=beside, folders=folders)

    def copy(self, layer: Layer, covered: tuple[str, ...], bounds: Bounds) -> None:
        """Copy a folder, so that the tool works on the copy. Before the tool starts and before
        `wait`.

        `covered` are paths that the tool can neither read nor write.
        """
        from actum.workspace import copied  # few file systems need it

        folder = Path(layer.folder)
        start = copied.make(layer.grant, folder, covered, bounds)
        self._starts[layer.folder] = copied.with_inputs(start, layer.placed, folder)
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
        """Return when a later change of the folders gets a later time than the start time, and is
        found. The clock of file systems ticks every few milliseconds."""
        _await_clock(self._since_ns, self.folder if self._beside else None)

    def look(self) -> Changes:
        """Compare. Only when no process of the tool is left."""
        return Changes(layers=tuple((layer, self._compare(layer)) for layer in self.layers))

    def _compare(self, layer: Layer) -> Found:
        with opened(layer.tree) as above, opened_base(layer) as base:
            if not layer.is_copy:
                return upper.changes(above, base, self._since_ns, layer.placed, over=self._over)
            from actum.workspace import copied

            return copied.changes(above, base, self._start_of(layer), over=self._over)

    def _is_untouched(self) -> bool:
        """Whether the upper layers are empty. A copy has to be compared."""
        for layer in self.layers:
            if layer.is_copy:
                return False
            above = f"{layer.folder}/upper"
            top, below = os.stat(above), base_of(layer)
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
        """Compare under the lock and commit, unless a person has to decide.

        Returns the changes and the state: unchanged, committed, conflict or held. `judge` returns
        the paths that a person has to decide about, `conflicts` those that another program has
        changed. `tell` records a commit, perhaps twice if this process is killed.
        """
        if not self._waited and self._is_untouched():  # most executions: no lock
            self._drop()
            return Changes(layers=()), "unchanged"
        with locked(self.folder.parent):
            changes = self.look()
            if not changes:
                # Nothing was changed, or the project already has the same content.
                retire(self.folder, tell) if self._waited else self._drop()
                return changes, "unchanged"
            # Before conflicts: a change by another program must not bypass an approval.
            if held := judge(changes):
                self._hold(changes, "held", held)
                return changes, "held"
            if overtaken := conflicts(changes):
                self._hold(changes, "conflict", overtaken)
                return changes, "conflict"
            self._apply(changes, tell)
        return changes, "committed"

    def discard(self) -> None:
        removal.remove(self.folder)

    def _drop(self) -> None:
        """Remove layers that hold nothing, after the answer if there is a thread for it."""
        if self._folders is None:
            self.discard()
        else:
            self._folders.drop(self.folder)

    def abandon(self) -> None:
        """Remove the layers, unless a commit has begun or a person has to decide.

        If the removal fails (a process may have no descriptor left), recovery removes them.
        """
        if not self.is_decided and not (self.folder / RECORD).exists():
            with contextlib.suppress(removal.RemovalRefused, OSError):
                self.discard()

    def _hold(self, changes: Changes, state: str, why: tuple[str, ...]) -> None:
        if self._waited:
            return  # it still waits, with the record that is signed
        for folder, start in self._starts.items():
            start.write(Path(folder))
        text = self._record(changes, state, why, ())
        write_whole(self.folder / RECORD, text, synced=False)
        self.record_sha256 = sha256_bytes(text)

    def _apply(self, changes: Changes, tell: Tell) -> None:
        parts: list[Part] = []
        backward = []
        for layer, found in changes.layers:
            folder = Path(layer.folder)
            for name in staging.STAGED if self._waited else ():
                removal.remove_part(folder, name)  # left by a process that was killed
            staging.stage(found.delta, layer, copied=self._waited)
            staged = commit.keep(found.delta, Path(layer.grant), folder)
            text = json.dumps([step.document() for step in staged.backward]).encode()
            (folder / BACKWARD).write_bytes(text)
            backward.append(sha256_bytes(text))
            parts.append((layer.grant, folder.name, staged.forward, staged.backward))
        note_size(self.folder, [Path(layer.folder) for layer in self.layers])
        record = self._record(changes, "committed", (), backward)
        self.record_sha256 = sha256_bytes(record)
        intent.write(self.folder, record, parts)
        intent.carry_through(self.folder, tell, again=False)

    def _record(
        self, changes: Changes, state: str, why: tuple[str, ...], backward: Sequence[str]
    ) -> bytes:
        record = {
            "v": 1,
            "home": home_of(self.folder),
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
    """Stat the folder that the policy has judged, before any layer is made."""
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


def await_later_changes() -> None:
    """Return when a later change gets a later time than every change before this call."""
    _await_clock(time.time_ns())


def _await_clock(since_ns: int, folder: Path | None = None) -> None:
    """`folder` is ours, and on the file system of all changes that are compared."""
    tick_ns = round(time.clock_getres(_COARSE) * 1e9)
    while (coarse_ns := time.clock_gettime_ns(_COARSE)) <= since_ns:
        if folder is not None and _gives_later_times(folder, since_ns):
            return
        next_tick_ns = coarse_ns + tick_ns - time.time_ns()
        time.sleep(max(next_tick_ns, _SHORTEST_NAP_NS) / 1e9)


def _gives_later_times(folder: Path, since_ns: int) -> bool:
    """Whether a change made now gets a time after `since_ns`, between two ticks of the clock.

    Since Linux 6.13, ext4, xfs, btrfs and tmpfs give a file the exact time if its last time was
    read (multigrain timestamps). No file gets an earlier time afterwards.
    """
    os.stat(folder)
    os.utime(folder)
    return os.stat(folder).st_ctime_ns > since_ns
