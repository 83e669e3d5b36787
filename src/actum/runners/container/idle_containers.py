"""Started containers that wait for a request: made ahead, each used once.

A container is started for one *form* of request: the same limits, filter, mounts and covers, and
the same files behind them. Arguments, environment, stdin, secrets and the content of what the tool
may write come with the request. So a new script in the same project finds a container, and a new
directory or a new limit does not.

A form is made ahead when it was asked for before; a command that runs one tool makes none. One
thread makes them, when there was no request for a moment. Every container that waits costs a
process of the engine, so the number of all of them has a ceiling.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from actum.contract.levels import is_within
from actum.errors import ActumError
from actum.runners.container import staged_files
from actum.runners.container.container_limits import ContainerLimits
from actum.runners.container.copies_ahead import CopiesAhead, Covered
from actum.runners.container.started_container import Started
from actum.value import value

if TYPE_CHECKING:
    from actum.sandbox.wire import Request

#: Containers that wait, of one form and of all forms of one runner.
PER_FORM, IN_ALL = 2, 4
_REMEMBERED = 64
#: A pause without requests before one is made, and the longest wait for such a pause.
_QUIET_S, _LATEST_S = 0.01, 0.25
#: A container that waited longer is removed; interval of the check.
KEEP_S, _LOOK_S = 300.0, 10.0


@value
class Form:
    """What a waiting container must equal to serve a request."""

    key: tuple[object, ...]
    covered: Mapping[str, Covered]  #: writable folder -> names in it that are covered
    #: Other covered paths. As long as they are open, no other file gets their inode numbers.
    pinned: tuple[str, ...]


def form_of(
    request: Request, *, allow_fork: bool, steady: bool, system: tuple[str, ...]
) -> Form | None:
    """``None`` for a request that no waiting container serves. `system`: paths of the host that
    every container is shown."""
    covered: dict[str, dict[str, bool]] = {}
    grants: list[tuple[str, tuple[int, ...]]] = []
    for grant in request["grants"]:
        path, write = grant["path"], grant["write"]
        if write and grant["layers"]:
            covered[path] = {}
            grants.append((path, ()))
        elif write or grant["source"] or grant["layers"]:
            return None  # inputs that were sealed for this request
        else:
            grants.append((path, _identity(path)))
    covers: list[tuple[object, ...]] = []
    pinned = []
    for path in request["deny"]:
        holder = max((each for each in covered if is_within(path, each)), key=len, default=None)
        is_folder = os.path.isdir(path) and not os.path.islink(path)
        if holder is None:
            # A cover is on the file of that time: the kernel detaches it if that is replaced.
            covers.append((path, is_folder, *_identity(path)))
            pinned.append(path)
        elif os.path.dirname(path) != holder:
            return None  # its parent is a folder of the request
        else:
            covered[holder][os.path.basename(path)] = is_folder
            covers.append((path, is_folder))
    limits = ContainerLimits.of(request)
    shown = tuple((path, _identity(path)) for path in system)
    key = (limits, allow_fork, steady, tuple(grants), tuple(covers), shown)
    return Form(key=key, covered=covered, pinned=tuple(pinned))


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino


def pin(paths: Iterable[str]) -> list[int]:
    with contextlib.ExitStack() as undo:
        found = []
        for path in paths:
            found.append(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))
            undo.callback(os.close, found[-1])
        undo.pop_all()
        return found


@value
class Idle:
    """A container that waits, with the folders that it is shown."""

    started: Started
    own: Path
    copies: CopiesAhead | None
    pins: list[int]
    since: float

    def is_fit(self) -> bool:
        """Whether its init waits, and its groups still have the limits that were compared."""
        return self.started.sandbox.still_waiting() and self.started.group.is_limited()

    def joins(self, request: Request) -> bool:
        """Take over the files and copies of a request. False: it does not serve that request."""
        layers = {each["path"]: each["layers"] for each in request["grants"] if each["layers"]}
        if self.copies is not None:
            if not self.copies.serves(layers):
                return False
            self.copies.move_to(layers)
        elif layers:
            return False
        staged_files.fill(self.own, request)
        return True

    def discard(self) -> None:
        self.started.discard()
        self.leave()

    def leave(self) -> None:
        """Remove what is left of the folders that waited."""
        while self.pins:
            os.close(self.pins.pop())
        if self.copies is not None:
            self.copies.discard()


#: Makes one container of a form; ``None`` if the host's files have another form by now.
Make = Callable[[], "Idle | None"]


class IdleContainers:
    """The waiting containers of one runner, by form. Shared by threads."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[object, ...], list[Idle]] = {}
        self._once: dict[tuple[object, ...], None] = {}  #: forms requested once, the newest last
        self._due: dict[tuple[object, ...], Make] = {}
        self._orders: queue.SimpleQueue[tuple[object, ...] | None] = queue.SimpleQueue()
        self._left: queue.SimpleQueue[Idle] = queue.SimpleQueue()  #: whose copies were moved
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._closed = False
        self._asked = 0.0

    def take(self, form: Form, request: Request) -> Started | None:
        """A container that has taken over the request's files."""
        self._asked = time.monotonic()
        while True:
            with self._guard:
                waiting = self._waiting.get(form.key)
                idle = waiting.pop(0) if waiting else None
            if idle is None:
                return None
            try:
                serves = idle.is_fit() and idle.joins(request)
            except BaseException:
                idle.discard()
                raise
            if serves:
                self._left.put(idle)
                return idle.started
            idle.discard()

    def refill(self, form: Form, make: Make) -> None:
        """Have some ready for the next request of a form that came before. Returns at once."""
        self._asked = time.monotonic()
        with self._guard:
            if self._closed or not self._came_before(form.key):
                return
            if self._worker is None:
                self._worker = threading.Thread(
                    target=self._work, name="actum-containers", daemon=True
                )
                self._worker.start()
            known = form.key in self._due
            self._due[form.key] = make
        if not known:
            self._orders.put(form.key)

    def count(self) -> int:
        with self._guard:
            return sum(map(len, self._waiting.values()))

    def _came_before(self, key: tuple[object, ...]) -> bool:
        if key in self._once:
            return True
        if len(self._once) >= _REMEMBERED:
            del self._once[next(iter(self._once))]
        self._once[key] = None
        return False

    def _work(self) -> None:
        while True:
            try:
                key = self._orders.get(timeout=_LOOK_S if self.count() else None)
            except queue.Empty:
                self._discard(self._unfit())
                continue
            if key is None:
                return
            self._await_quiet()
            with self._guard:
                make = self._due.pop(key)
            while self._wants(key):
                self._discard(self._surplus(key))
                try:
                    idle = make()
                except (ActumError, OSError):  # the second: no descriptor is left
                    break  # the next request gets the error
                if idle is None:
                    break
                with self._guard:
                    if not self._closed:
                        self._waiting.setdefault(key, []).append(idle)
                        continue
                idle.discard()
            self._remove_left()

    def _await_quiet(self) -> None:
        latest = time.monotonic() + _LATEST_S
        while not self._closed:
            now = time.monotonic()
            left = min(self._asked + _QUIET_S, latest) - now
            if left <= 0:
                return
            time.sleep(left)

    def _wants(self, key: tuple[object, ...]) -> bool:
        with self._guard:
            return not self._closed and len(self._waiting.get(key, ())) < PER_FORM

    def _unfit(self) -> list[Idle]:
        with self._guard:
            return [*self._taken_if(lambda idle: not idle.is_fit() or _is_old(idle))]

    def _surplus(self, key: tuple[object, ...]) -> list[Idle]:
        """Those over the age; and for one more of this form, the oldest of the others."""
        with self._guard:
            found = [*self._taken_if(_is_old)]
            while sum(map(len, self._waiting.values())) >= IN_ALL:
                other = next(each for each in self._waiting if each != key)
                found.append(self._waiting[other].pop(0))
                if not self._waiting[other]:
                    del self._waiting[other]
        return found

    def _taken_if(self, is_taken: Callable[[Idle], bool]) -> Iterator[Idle]:
        for key, waiting in [*self._waiting.items()]:
            kept = []
            for idle in waiting:
                if is_taken(idle):
                    yield idle
                else:
                    kept.append(idle)
            if kept:
                self._waiting[key] = kept
            else:
                del self._waiting[key]

    @staticmethod
    def _discard(found: list[Idle]) -> None:
        for idle in found:
            idle.discard()

    def _remove_left(self) -> None:
        while True:
            try:
                self._left.get_nowait().leave()
            except queue.Empty:
                return

    def close(self) -> None:
        with self._guard:
            self._closed = True
            left = [idle for waiting in self._waiting.values() for idle in waiting]
            self._waiting = {}
        if self._worker is not None:
            self._orders.put(None)
            self._worker.join()
        self._discard(left)
        self._remove_left()


def _is_old(idle: Idle) -> bool:
    return time.monotonic() - idle.since > KEEP_S
