"""One container: made by the engine, introduced by our init, compared with what was asked for."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actum import kernel
from actum.errors import Refused, SandboxUnavailable
from actum.runners.container import container_limits, container_mounts
from actum.runners.container.container_limits import ContainerLimits
from actum.runners.container.engine_api import Engine, EngineError, understood
from actum.sandbox import cgroup_v1, cgroup_v2, seccomp
from actum.sandbox.cgroup import Layout, Usage
from actum.sandbox.handle import Sandbox
from actum.sandbox.packets import pass_packet
from actum.sandbox.sweep import remove_home
from actum.value import value

#: From the start of a container until its init has spoken.
_HELLO_S = 30.0
_LOOK_S = 1.0
#: An engine that takes longer to remove a container is asked again later.
REMOVAL_S = 10.0
#: More than any table of mounts: a plan has at most some hundred paths.
_TABLE_BYTES = 1 << 22
_MEMFD = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING


class ContainerGroup:
    """The groups of one container, as far as the host has a part in them. They end with it."""

    oom_poll = select.POLLIN

    def __init__(self, removals: Removals, own: Path) -> None:
        self._removals = removals
        self._own: Path | None = own
        #: Never readable: the init is the one that ends the tool.
        self.oom_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._counters: cgroup_v1.Group | cgroup_v2.Group | None = None
        self._limits: Mapping[str, str] = {}

    def counted_in(self, counters: cgroup_v1.Group | cgroup_v2.Group) -> None:
        self._counters = counters

    def limited_by(self, limits: Mapping[str, str]) -> None:
        """Files of the groups with their limits, as they were compared."""
        self._limits = limits

    def is_limited(self) -> bool:
        """Whether the limits are still those: an engine can change them at any time."""
        try:
            return all(_text(path) == text for path, text in self._limits.items())
        except OSError:
            return False

    def limit(self, *, memory_bytes: int, cpu_cores: int, children: int) -> None:
        raise NotImplementedError  # the engine has set them

    def oom_heard(self) -> bool:
        return False

    def oom_kills(self) -> int:
        return 0

    def usage(self, counters: Sequence[str] | None = None) -> Usage:
        if self._counters is not None:
            try:
                return self._counters.usage(counters)
            except OSError:
                pass  # the container is gone, and its counters with it
        return Usage(
            memory_peak_bytes=None,
            cpu_ns=0,
            periods_throttled=0,
            oom_kills=0,
            oom_proof="",
            forks_refused=0,
            tasks_peak=None,
        )

    def close(self) -> None:
        """Remove the container."""
        self.remove()

    def forget(self) -> None:
        """Close the descriptors; the caller removes the container."""
        if self.oom_event >= 0:
            os.close(self.oom_event)
            self.oom_event = -1
        if self._counters is not None:
            self._counters.close()
            self._counters = None

    def remove(self) -> None:
        self.forget()
        if self._own is not None:
            own, self._own = self._own, None
            self._removals.remove(name_of(own))
            remove_home(own)


class Removals:
    """Removes containers by their names, which the engine cannot choose. What an engine did not
    remove, or may still make, is tried again later; the next process finds it by its label."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._due: deque[str] = deque()  # shared by threads

    def remove(self, name: str) -> None:
        if not remove_container(self._engine, name):
            self._due.append(name)

    def again(self) -> None:
        """Until one fails: an engine that does not answer is not asked twice."""
        for _ in range(len(self._due)):
            try:
                name = self._due.popleft()
            except IndexError:
                return
            if not remove_container(self._engine, name):
                self._due.appendleft(name)
                return


def name_of(own: Path) -> str:
    """The name of the container whose folder this is."""
    return f"actum-{own.name}"


def remove_container(engine: Engine, container: str) -> bool:
    """Whether it is gone. Podman answers 500 for a container that is just ending, so such a failure
    is tried again at once."""
    for pause_s in (0.02, 0.1, 0.5, 0.0):
        try:
            engine.call(
                "DELETE",
                f"/containers/{container}",
                allowed=(404, 409),
                wait_s=REMOVAL_S,
                force="1",
                v="1",
            )
        except EngineError as error:
            if error.status < 500:
                return False
            time.sleep(pause_s)
        else:
            return True
    return False


@value
class Started:
    """A container whose init waits for its request."""

    container_id: str
    sandbox: Sandbox
    group: ContainerGroup

    def discard(self) -> None:
        self.sandbox.discard()
        self.group.remove()


def start(
    engine: Engine,
    removals: Removals,
    wanted: dict[str, Any],
    limits: ContainerLimits,
    own: Path,
    *,
    uid: int,
    allow_fork: bool,
    steady: bool,
) -> Started:
    """Make and start a container. Its folder `own` is removed with it, or here on a failure."""
    name, asked, made = name_of(own), False, None
    try:
        listener = _listen(own / "door")
        try:
            asked = True
            made = engine.call("POST", "/containers/create", wanted, name=name)
            engine.call("POST", f"/containers/{name}/start")
            inspected = engine.call("GET", f"/containers/{name}/json")
            with understood("POST /containers/create"):
                _require_same(made, inspected)
                container_limits.require_kept(limits, inspected)
                pid = int(inspected["State"]["Pid"])
            control = _accept(listener, engine, name)
        finally:
            listener.close()
            os.unlink(own / "door" / "host")  # nobody else connects
        return _introduced(
            removals, control, made["Id"], pid, wanted, limits, own, uid, allow_fork, steady
        )
    except BaseException as error:
        if asked:
            removals.remove(name)
        remove_home(own)
        if isinstance(error, EngineError) and not error.status and made is None:
            raise Refused(
                "RUNNER_UNAVAILABLE",
                f"The docker runner is not available: {error}.",
                remedy=error.remedy,
            ) from error
        if isinstance(error, EngineError):
            raise SandboxUnavailable(
                f"The engine could not start a container: {error}.",
                remedy=error.remedy or "See `actum doctor`, and the engine's log.",
            ) from error
        raise


def _require_same(made: Any, inspected: Any) -> None:
    """The engine knows our name for the container by the id that it gave first."""
    found = inspected["Id"]
    if not isinstance(found, str) or not re.fullmatch("[0-9a-f]{64}", found) or made["Id"] != found:
        raise EngineError(f"it names another container, {made['Id']!r}, than it made, {found!r}")


def _listen(door: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(door, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # By the descriptor: the path can be longer than an address.
        listener.bind(f"/proc/self/fd/{folder}/host")
    finally:
        os.close(folder)
    os.chmod(door / "host", 0o777)  # noqa: S103 -- the folders above it are ours alone
    listener.listen(1)
    return listener


def _accept(listener: socket.socket, engine: Engine, container_id: str) -> socket.socket:
    until = time.monotonic() + _HELLO_S
    listener.settimeout(_LOOK_S)
    while time.monotonic() < until:
        try:
            control, _address = listener.accept()
        except TimeoutError:
            _require_running(engine, container_id)
        else:
            control.setblocking(True)
            return control
    raise SandboxUnavailable(
        "The init of a container did not come up in time.",
        remedy="See `actum doctor`, and the engine's log.",
    )


def _require_running(engine: Engine, container_id: str) -> None:
    found = engine.call("GET", f"/containers/{container_id}/json", allowed=(404,))
    with understood("GET /containers"):
        state = (found or {}).get("State") or {}
        running = state.get("Running")
        said = state.get("Error") or f"it ended with {state.get('ExitCode', 'no status')}"
    if not running:
        raise SandboxUnavailable(
            f"The container ended before its init came up: {said}.",
            remedy="See the engine's log.",
        )


def _introduced(
    removals: Removals,
    control: socket.socket,
    container_id: str,
    init: int,
    wanted: dict[str, Any],
    limits: ContainerLimits,
    own: Path,
    uid: int,
    allow_fork: bool,
    steady: bool,
) -> Started:
    group = ContainerGroup(removals, own)
    credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, peer_uid, _gid = struct.unpack("3i", credentials)
    if pid != init or peer_uid != uid:
        control.close()
        raise SandboxUnavailable(
            f"Process {pid} of user {peer_uid} answered instead of the container's init.",
            remedy="Another program connects to the sockets of Actum: find it.",
        )
    try:
        pidfd = _pidfd_of_peer(control, pid)
    except SandboxUnavailable:
        control.close()
        raise
    streams = _Streams.make()
    sandbox = Sandbox(
        control, streams.host[0], streams.host[1], streams.host[2], pidfd, streams.bell
    )
    try:
        _close(_await(sandbox, "hello")[1])
        layout = Layout.of_host()
        version = layout.version()
        counters, usage_files, folders, task_limit = _groups(layout, version, pid)
        group.counted_in(counters)
        filtered = _filter(allow_fork=allow_fork)
        try:
            words = [kernel.landlock_abi(), int(steady)]
            shown = container_limits.shown_files(version)
            lists = [len(shown), *shown, len(usage_files), *usage_files]
            packet = b"".join(os.fsencode(str(word)) + b"\0" for word in (*words, *lists))
            passed = [*streams.tool, filtered, streams.bell]
            pass_packet(control, packet, passed if task_limit < 0 else [*passed, task_limit])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _has_ended() from error
        finally:
            os.close(filtered)
            streams.close_the_tools()
            if task_limit >= 0:
                os.close(task_limit)
        report, descriptors = _await(sandbox, "limits")
        table = os.pread(descriptors[0], _TABLE_BYTES, 0).decode("utf-8", "surrogateescape")
        _close(descriptors)
        container_limits.require_inside(limits, uid, version, report["texts"], report["spaces"])
        host_mounts = container_mounts.HostMounts.now()
        container_mounts.require_mounts(table, wanted, host_mounts, container_id)
        group.limited_by(container_limits.kept_in(folders, version, report["texts"]))
    except BaseException:
        streams.close_the_tools()
        sandbox.discard()
        group.forget()
        raise
    return Started(container_id=container_id, sandbox=sandbox, group=group)


def _await(sandbox: Sandbox, kind: str) -> tuple[Any, list[int]]:
    """The next report, which must be of this kind, and its descriptors."""
    if not sandbox.reports.poll(_HELLO_S * 1000):
        raise SandboxUnavailable(
            "The init of a container does not answer.", remedy="Look at the engine's log."
        )
    received = sandbox.receive()
    if received is None or received[0]["kind"] != kind:
        _close([] if received is None else received[1])
        said = "it has ended" if received is None else received[0].get("message", "")
        raise SandboxUnavailable(
            f"The init of a container could not prepare itself: {said}.",
            remedy="See `actum doctor`.",
        )
    return received


def _pidfd_of_peer(control: socket.socket, pid: int) -> int:
    """Of the process at the other end of a socket, and of no later one with its number."""
    try:
        found = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise _has_ended() from error
    hung_up = select.poll()
    hung_up.register(control, 0)
    # Only the init holds the other end: open after `pidfd_open`, it was alive then.
    if hung_up.poll(0):
        os.close(found)
        raise _has_ended()
    return found


def _has_ended() -> SandboxUnavailable:
    return SandboxUnavailable(
        "The init of a container has ended before it was ready.",
        remedy="Run again; if it stays, see the engine's log.",
    )


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _groups(
    layout: Layout, version: int, pid: int
) -> tuple[cgroup_v1.Group | cgroup_v2.Group, list[str], Mapping[str, str], int]:
    """(reader of the container's counters, their files inside, the folders of its groups by
    controller, its `pids.max` or -1)"""
    inside = container_limits.GROUPS
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            rows = [line.rstrip("\n").split(":", 2) for line in file]
    except (FileNotFoundError, ProcessLookupError) as error:
        raise _has_ended() from error
    counters: cgroup_v1.Group | cgroup_v2.Group
    if version == 1:
        paths = {name: path for _, names, path in rows for name in names.split(",")}
        folders = {
            name: f"{mount}{paths[name]}"
            for name, mount in cgroup_v1.Hierarchies.of(layout).mounts.items()
        }
        files = [f"{inside}/{name}/{file}" for name, file in cgroup_v1.usage_files(folders)]
        counters, pids = cgroup_v1.Group(folders), folders["pids"]
    else:
        folder = f"{layout.v2}{next(path for number, _, path in rows if number == '0')}"
        folders = {"": folder}
        counters, pids = cgroup_v2.Group(folder), folder
        files = [f"{inside}/{file}" for file in cgroup_v2.usage_files(folder)]
    task_limit = -1
    if os.geteuid() == 0:
        # So that threads are no children: the init raises the limit for each.
        with contextlib.suppress(OSError):
            task_limit = os.open(f"{pids}/pids.max", os.O_WRONLY | os.O_CLOEXEC)
    return counters, files, folders, task_limit


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


def _filter(*, allow_fork: bool) -> int:
    program = seccomp.compile_filter(allow_fork=allow_fork)
    found = os.memfd_create("filter", os.MFD_CLOEXEC)
    os.write(found, program)
    return found


@value(frozen=False)
class _Streams:
    """Descriptors of the tool's streams: the host's ends, and the tool's."""

    host: tuple[int, int, int]
    tool: list[int]
    bell: int

    @classmethod
    def make(cls) -> _Streams:
        # As serve.c: stdin is a file in memory that the host fills, and the init seals.
        stdin = os.memfd_create("stdin", _MEMFD)
        reading = os.dup(stdin)
        out, err = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        for end in (out[0], err[0]):
            os.set_blocking(end, False)
        bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        return cls(host=(stdin, out[0], err[0]), tool=[reading, out[1], err[1]], bell=bell)

    def close_the_tools(self) -> None:
        while self.tool:
            os.close(self.tool.pop())
