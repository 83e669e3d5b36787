"""Warm interpreters: started before the request, each used once.

The program that runs snippets waits for its order on stdin, and so does Python itself for a
program (`python3 -`). So an interpreter can be confined, limited and do its imports in advance,
under exactly the plan that it will be used for: it serves a plan only if everything except stdin is
equal. A thread refills the pool once there was no request for a moment: the work, and the
interpreter lock with it, does not delay an answer that is being recorded. Requests without a pause
between them get a new interpreter each.

Its imports are not our code, and run without a request: the same thread ends an interpreter that is
still busy after a while.

Where changes are a transaction, it waits in layers of its own (`LayersAhead`). An overlay does not
notice that a name it has looked up became another file below. So an interpreter waits only if it
looks up nothing in these folders except the path of its working directory, and serves only if that
path is unchanged.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from actum.contract.call import PROVIDED, WAITING_DRIVER
from actum.contract.levels import is_within
from actum.errors import ActumError
from actum.runners.layers import LayersAhead
from actum.sandbox.cgroup import Cgroup
from actum.sandbox.handle import Sandbox
from actum.sandbox.root import SNIPPET
from actum.value import value

if TYPE_CHECKING:
    from actum.contract.call import Plan
    from actum.sandbox.wire import Request

#: Equal for plans that one warm interpreter can serve.
Shape = bytes
#: Without back references, which would make equal values differ by their reference count.
_PLAIN_MARSHAL = 2
#: A pause without requests before a refill, and the longest wait for such a pause.
_QUIET_S, _LATEST_S = 0.005, 0.25
#: Until the init of a new one reports that it runs.
_STARTING_MS = 1_000
_PER_SHAPE, _IN_ALL = 2, 8
_REMEMBERED = 64
_KEEP_S = 300.0
#: Time for imports, after which a waiting interpreter uses no CPU; interval of the check.
_IMPORTS_S, _LOOK_S, _IDLE_NS = 10.0, 1.0, 5_000_000
_PIPE_BYTES = 1 << 20
_NO_BYTECODE = "-B"
_PYTHON = re.compile(r"python3(\.\d+)?")


@value(frozen=False, kw_only=False)
class Warm:
    """A sandbox whose interpreter waits for its order."""

    sandbox: Sandbox
    cgroup: Cgroup
    order: int  #: the writing end of its stdin
    since: float
    layers: LayersAhead | None = None  #: of a transaction
    cpu_ns: int = 0  #: used at the last check

    def waits(self, now: float) -> bool:
        """Whether it is usable: it has not ended, as it does if an import fails, and uses no CPU
        after the time for imports."""
        try:
            used = self.cgroup.usage().cpu_ns
        except OSError:
            return False  # an ended sandbox removes its groups
        before, self.cpu_ns = self.cpu_ns, used
        busy = now - self.since > _IMPORTS_S and used - before > _IDLE_NS
        return not busy and self.sandbox.still_waiting()

    def joins(self, layers: Mapping[str, str]) -> bool:
        """Move its layers to the place of a request's. False: it does not serve that request."""
        if self.layers is None:
            return not layers
        if not self.layers.serves(layers):
            return False
        self.layers.move_to(layers)
        return True

    def give(self, order: bytes) -> None:
        """Write its order. The pipe holds all of it; a dead reader is detected later."""
        try:  # noqa: SIM105 -- `suppress` would be one more call before the start
            os.write(self.order, order)
        except BrokenPipeError:
            pass
        os.close(self.order)

    def discard(self) -> None:
        os.close(self.order)
        self.sandbox.discard()
        self.cgroup.remove()
        if self.layers is not None:
            self.layers.discard()


#: Starts a sandbox with this descriptor as stdin, in layers made for it.
Launch = Callable[[int], tuple[Sandbox, Cgroup, LayersAhead | None]]
#: Computes the current shape of a request; and starts a sandbox for it.
Recipe = tuple[Callable[[], Shape | None], Launch]


class Likeness:
    """What a warm interpreter must equal to serve one plan. Shared by threads."""

    def __init__(self, plan: Plan) -> None:
        #: Snippets and calls differ only in their order, so the next one has the same shape.
        #: Programs have arguments and a folder of their own.
        self.recurs = SNIPPET in plan.argv or _imports_ahead(plan)
        self._serves = (
            plan.image is None and (self.recurs or _awaits_program(plan)) and not plan.secrets
        )
        if plan.layers and SNIPPET in plan.argv[:-1]:
            # Modules that it imports may be in these folders, or write to them.
            self._serves = False
        self._judged = plan.policy.sha256, plan.proof.executable.sha256
        #: The last request and its text. Requests are never changed, so the same object has the
        #: same text.
        self._read: tuple[Request | None, bytes] = None, b""

    def shape(self, request: Request, owner: tuple[int, int]) -> Shape | None:
        """``None`` for plans that no warm interpreter serves, or that have egress."""
        if not self._serves or request["listen"] or request["resolver"]:
            return None
        known, text = self._read
        if known is not request:
            text = marshal.dumps([_in_any_layers(request), *self._judged], _PLAIN_MARSHAL)
            self._read = request, text
        # A cover is mounted on the file at that time: if another file replaces it, as an editor
        # does when it saves, the kernel detaches the cover. The ctime too, because the inode
        # number of a removed file is reused.
        covered = [_found(path) for path in (*request["protect"], *request["deny"])]
        # Its working directory is open already. A new folder in the same place has another inode
        # number as long as the first is in use.
        here = _found(request["working_directory"])[:2]
        ways = [_seen(path) for path in _looked_up(request)]
        return text + marshal.dumps((owner, covered, here, ways), _PLAIN_MARSHAL)


def _in_any_layers(request: Request) -> dict[str, object]:
    """`request` without the paths of its layers, which differ for each request."""
    grants = [{**grant, "layers": bool(grant["layers"])} for grant in request["grants"]]
    return {**request, "grants": grants}


def _looked_up(request: Request) -> list[str]:
    """The paths that the init looks up in overlays: the working directory, covers and parents."""
    found: dict[str, None] = {}
    for grant in request["grants"]:
        if not grant["layers"]:
            continue
        top = grant["path"]
        found[top] = None
        for path in (request["working_directory"], *request["protect"], *request["deny"]):
            step = path
            while step != top and is_within(step, top):
                found[step] = None
                step = os.path.dirname(step)
    return [*found]


def _seen(path: str) -> tuple[int, ...]:
    """What an overlay caches of a name that was looked up: the file, its mode and owner."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid


def _found(path: str) -> tuple[int, ...]:
    """The current file (device, inode, ctime); empty if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _imports_ahead(plan: Plan) -> bool:
    """A function of a pinned package. Not if a path of the host is granted: a module there may
    have changed by the time of the call, and its import could write without a request.
    """
    driver = f"{PROVIDED}/{WAITING_DRIVER}"
    reaches = plan.policy.read or plan.policy.write
    return WAITING_DRIVER in plan.provided and driver in plan.argv and not reaches


def _awaits_program(plan: Plan) -> bool:
    """`python3 [-B] - …` of the system: it reads its program to the end before it runs any of it,
    and until then only files of its own, because only the program searches the working directory.
    Not if a tool could change it, its modules, or what its environment names.
    """
    executable = plan.proof.executable.path
    words = plan.argv[2:3] if plan.argv[1:2] == (_NO_BYTECODE,) else plan.argv[1:2]
    if words != ("-",) or not _PYTHON.fullmatch(os.path.basename(executable)):
        return False
    if any(name.startswith("PYTHON") and name != "PYTHONHASHSEED" for name in plan.environment):
        return False
    reaches = (*plan.policy.read, *plan.policy.write)
    prefix = os.path.dirname(os.path.dirname(executable))
    home = plan.environment.get("HOME", "")
    searched = [f"{prefix}/lib", f"{prefix}/local/lib", *([f"{home}/.local"] if home else [])]
    return not any(
        is_within(executable, path)
        or any(is_within(path, folder) or is_within(folder, path) for folder in searched)
        for path in reaches
    )


class WarmInterpreters:
    """The warm interpreters of one runner, by shape. Shared by threads."""

    def __init__(self) -> None:
        self._waiting: dict[Shape, list[Warm]] = {}
        self._wanted: dict[
            Shape, int
        ] = {}  #: how many to have ready; more of those that were missed
        self._once: dict[Shape, None] = {}  #: shapes requested once, the newest last
        self._guard = threading.Lock()
        self._due: dict[Shape, Recipe] = {}  #: shapes to refill, and how
        self._orders: queue.SimpleQueue[Shape | None] = queue.SimpleQueue()  #: one entry for each
        self._worker: threading.Thread | None = None
        self._closed = False
        self._asked = 0.0  #: time of the last request
        self._left: queue.SimpleQueue[LayersAhead] = (
            queue.SimpleQueue()
        )  #: folders whose layers were moved

    def take(self, shape: Shape) -> Warm | None:
        self._asked = time.monotonic()
        while True:
            with self._guard:
                waiting = self._waiting.get(shape)
                warm = waiting.pop(0) if waiting else None
                if warm is None and shape in self._wanted:
                    self._wanted[shape] = min(self._wanted[shape] + 1, _IN_ALL // 2)
            if warm is None:
                return None
            if warm.sandbox.still_waiting():
                return warm
            warm.discard()  # killed, or its imports failed

    def take_into(self, layers: Mapping[str, str], shape: Shape) -> Warm | None:
        """Take one, and move its layers to `layers`, which were made for this request."""
        while (warm := self.take(shape)) is not None:
            try:
                joined = warm.joins(layers)
            except BaseException:
                warm.discard()
                raise
            if joined:
                if warm.layers is not None:
                    self._left.put(warm.layers)
                return warm
            warm.discard()
        return None

    def remove_left(self) -> None:
        """Remove folders whose layers were moved: after the answer, when there is time."""
        while True:
            try:
                self._left.get_nowait().discard()
            except queue.Empty:
                return

    def refill(
        self, shape: Shape, look: Callable[[], Shape | None], launch: Launch, *, recurs: bool
    ) -> None:
        """Have some ready for the next request of this shape, which is expected if it `recurs`, or
        came before. Returns at once; the thread computes the shape again when there is time."""
        self._asked = time.monotonic()
        with self._guard:
            if self._closed or not (recurs or self._came_before(shape)):
                return
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="actum-refill", daemon=True)
                self._worker.start()
            known = shape in self._due
            self._due[shape] = look, launch
        if not known:
            self._orders.put(shape)

    def _came_before(self, shape: Shape) -> bool:
        if shape in self._once:
            return True
        if len(self._once) >= _REMEMBERED:
            del self._once[next(iter(self._once))]
        self._once[shape] = None
        return False

    def _work(self) -> None:
        checked_at = time.monotonic()
        while True:
            if time.monotonic() - checked_at >= _LOOK_S:
                self._end_unfit()
                checked_at = time.monotonic()
            try:
                shape = self._orders.get(timeout=_LOOK_S if self._any() else None)
            except queue.Empty:
                continue
            if shape is None:
                return
            self._await_quiet()
            with self._guard:
                look, launch = self._due.pop(shape)
            shape = look()
            if shape is None:
                continue
            self._drop_surplus(shape)
            while self._wanting(shape):
                self._await_quiet()  # a request may have come while the last one was made
                try:
                    warm = _start(launch)
                    if look() != shape:  # files changed while it started
                        warm.discard()
                        break
                except (ActumError, OSError):  # the second: no descriptor is left
                    break  # the next request gets the error
                with self._guard:
                    if not self._closed:
                        self._waiting.setdefault(shape, []).append(warm)
                        continue
                warm.discard()

    def _await_quiet(self) -> None:
        latest = time.monotonic() + _LATEST_S
        while not self._closed:
            now = time.monotonic()
            left = min(self._asked + _QUIET_S, latest) - now
            if left <= 0:
                return
            time.sleep(left)

    def _any(self) -> bool:
        with self._guard:
            return any(self._waiting.values())

    def _end_unfit(self) -> None:
        # Under the guard: an interpreter that was taken belongs to an execution.
        now, unfit = time.monotonic(), []
        with self._guard:
            for waiting in self._waiting.values():
                unfit += [warm for warm in waiting if not warm.waits(now)]
                waiting[:] = [warm for warm in waiting if warm not in unfit]
        for warm in unfit:
            warm.discard()

    def _wanting(self, shape: Shape) -> bool:
        with self._guard:
            wanted = self._wanted.setdefault(shape, _PER_SHAPE)
            return not self._closed and len(self._waiting.get(shape, ())) < wanted

    def _drop_surplus(self, shape: Shape) -> None:
        """Discard interpreters over the age, and over the count the oldest of other shapes."""
        old: list[Warm] = []
        now = time.monotonic()
        with self._guard:
            for waiting in self._waiting.values():
                old += [warm for warm in waiting if now - warm.since > _KEEP_S]
                waiting[:] = [warm for warm in waiting if now - warm.since <= _KEEP_S]
            while sum(map(len, self._waiting.values())) > _IN_ALL - _PER_SHAPE:
                others = [key for key, waiting in self._waiting.items() if waiting and key != shape]
                if not others:
                    break
                old.append(self._waiting[others[0]].pop(0))
            self._waiting = {key: waiting for key, waiting in self._waiting.items() if waiting}
            kept = {*self._waiting, shape}
            self._wanted = {key: count for key, count in self._wanted.items() if key in kept}
        for warm in old:
            warm.discard()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            left = [warm for waiting in self._waiting.values() for warm in waiting]
            self._waiting = {}
        if self._worker is not None:
            self._orders.put(None)
            self._worker.join()
        for warm in left:
            warm.discard()
        self.remove_left()


def _start(launch: Launch) -> Warm:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        # An order is at most this long, so that writing it never blocks.
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        sandbox, cgroup, layers = launch(reading)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    warm = Warm(sandbox, cgroup, writing, time.monotonic(), layers)
    # Start its program now: the program waits for its order on stdin.
    sandbox.go()
    sandbox.still_waiting(_STARTING_MS)
    return warm
