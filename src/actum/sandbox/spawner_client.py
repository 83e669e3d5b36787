"""The spawner's client in the host process: starts it, keeps members ready, hands them out."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from actum import native
from actum.errors import SandboxUnavailable
from actum.sandbox import wire
from actum.sandbox.handle import Sandbox, no_descriptors, not_passed
from actum.sandbox.packets import (
    DescriptorsLost,
    pass_document,
    pass_packet,
    raise_descriptor_limit,
    receive,
)
from actum.sandbox.snippet_interpreter import HASH_SEED, is_snippet
from actum.sandbox.spawner_clone import ALONE, Clone, cloned
from actum.value import value

if TYPE_CHECKING:
    from actum.sandbox.cgroup import Cgroup, Cgroups
    from actum.sandbox.wire import Grant, Limits, Make, Request, Trees

#: Attempts for one execution, if each member is dead on arrival.
_MOST_ASKED = 5
_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actum.sandbox.spawner import main; "
    "main(*map(int, sys.argv[2:]))"
)
#: The limits of the first member, made before the first request.
_MIB = 1 << 20
_GUESS: Limits = {
    "memory_bytes": 512 * _MIB,
    "tasks": 33,
    "quota_us": wire.CPU_PERIOD_US,
    "scratch_bytes": 256 * _MIB,
}
_FIRST: Make = {"allow_fork": True, "steady": False, "interpreter": False, **_GUESS}
_READY = b"ready"
#: The opener's refusals after which a copy can be used (opener.c).
_NO_OVERLAY = (b"COVERLAY_UNSUPPORTED ", b"CIDMAP_UNSUPPORTED ")
_DIGITS = 9  # of a number in the name of a group
#: Fixed when a member is made: (allow_fork, steady, interpreter).
Kind = tuple[bool, bool, bool]
#: Members are kept ready of the last kinds, this many.
_KINDS = 3
#: After this many executions without a wait, fewer members are kept.
_CALM = 200


@value(frozen=False, kw_only=False)
class _Member:
    """A sandbox that waits for its request, in its group."""

    kind: Kind
    sandbox: Sandbox
    cgroup: Cgroup
    trees: int  #: the socket on which the opener sends mounts to it

    def discard(self) -> None:
        os.close(self.trees)
        self.sandbox.discard()
        # If the removal fails, the next sweep does it: the group never held a tool.
        with contextlib.suppress(OSError):
            self.cgroup.remove()


class _NotMade(SandboxUnavailable):
    """The spawner could not make one member."""


class Spawner:
    """One spawner process, started on first use, shared by all threads; and the members it made.

    With `pool_size`, members are kept ready: of the last kind as many as were missed recently, of
    the kinds before it one each, and no more than that in all. They are requested when an execution
    has ended, and made when the spawner has nothing else to do.
    """

    def __init__(self, *, pool_size: int = 0, source: socket.socket | None = None) -> None:
        """`source` is the socket of a process that spawners are cloned from (`spawner_clone`)."""
        self._pool_size = pool_size
        self._source = source
        self._wanted = min(pool_size, 2)
        self._calm = 0
        self._lock = threading.Lock()  #: guards everything below
        self._receiving = threading.Lock()  #: held while waiting for the spawner's next message
        self._process: subprocess.Popen[bytes] | Clone | None = None
        self._socket: socket.socket | None = None
        self._opener: socket.socket | None = None
        self._ready = False
        self._cgroups: Cgroups | None = None
        self._equipped = self._taught = False
        self._interpreter = (0, 0)  #: device and inode of its own file
        self._mark = ""  #: prefix of the names of its groups; a number follows
        self._folders: list[str] = []
        self._limit_texts: list[str] = []  #: templates in the recipe
        self._last_number = 0  #: the last of these numbers that arrived
        #: The last request of each kind, the newest last.
        self._lately: dict[Kind, Make] = {_kind(_FIRST): _FIRST}
        self._peers = select.poll()  #: the process and the two sockets: readable if one has died
        self._pidfd = -1
        self._asked: deque[Kind] = deque()  #: kinds of members that are being made
        self._waiting: Counter[Kind] = Counter()  #: executions that wait for a member
        self._members: list[_Member] = []

    def start(self) -> None:
        """Start now rather than at the first sandbox; returns without waiting for readiness."""
        with self._lock:
            self._ensure_started()

    def equip(self, cgroups: Cgroups) -> None:
        """Set the location of control groups; the first member is made at once."""
        with self._lock:
            self._cgroups = cgroups
            self._equip(self._ensure_started())

    def _ensure_started(self) -> socket.socket:
        if self._socket is not None and not self._peers.poll(0):
            return self._socket
        self._discard()
        raise_descriptor_limit()
        program = native.content(native.INIT)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opener, openers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        interpreter = os.path.realpath(sys.executable)
        found = os.stat(interpreter)
        self._interpreter = (found.st_dev, found.st_ino)
        with _in_memory(program) as init:
            numbers = [theirs.fileno(), openers.fileno(), init.fileno()]
            clone = None if self._source is None else cloned(self._source, numbers)
            if clone is None:
                self._process = started = _started(interpreter, numbers)
                self._pidfd = os.pidfd_open(started.pid)
            else:
                self._process, self._pidfd = clone, clone.pidfd
        theirs.close()
        openers.close()
        self._socket, self._opener = ours, opener
        self._peers = select.poll()
        for peer in (ours, opener):
            self._peers.register(peer, 0)  # no messages: only POLLHUP
        # A new member still holds the spawner's end: the socket alone would report it late.
        self._peers.register(self._pidfd, select.POLLIN)
        self._ready = self._equipped = self._taught = False
        self._equip(ours)
        return ours

    def _equip(self, server: socket.socket) -> None:
        if self._equipped or self._cgroups is None:
            return
        from actum.sandbox.cgroup import (
            fresh_number,
            owner_mark,
        )  # imported after the spawner has started

        self._mark = f"{owner_mark()}-{fresh_number()}"
        recipe, self._folders = self._cgroups.recipe(self._mark)
        self._limit_texts = [text for _, _, text in recipe["limits"]]
        opened = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for folder in self._folders]
        try:
            # If it died meanwhile, the next request gets the reason.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                pass_document(server, json.dumps(recipe).encode(), opened)
                self._ask(server, next(reversed(self._lately.values())))
        finally:
            for descriptor in opened:
                os.close(descriptor)
        self._equipped = True

    def _ask(self, server: socket.socket, make: Make) -> None:
        texts = [text.format_map(make) for text in self._limit_texts]
        pass_packet(server, wire.pack_make(make, texts), [])
        self._asked.append(_kind(make))

    def launch(
        self,
        request: Request,
        owner: tuple[int, int],
        stdin: bytes | int,
    ) -> tuple[Sandbox, Cgroup]:
        """Send a request to a member; the sandbox waits for its `go`."""
        limits, grants = wire.figures(request), request["grants"]
        make: Make = {
            "allow_fork": request["max_children"] > 0,
            "steady": request["steady"],
            "interpreter": self._taught and self._is_ours(request) and is_snippet(request),
            **limits,
        }
        trees: Trees = {"owner_uid": owner[0], "owner_gid": owner[1], "grants": grants}
        packed = wire.pack(request, [text.format_map(limits) for text in self._limit_texts])
        try:
            member = self._take(make)
        except _SpawnerDied:
            member = self._take(make)  # the dead one had no request yet: retry once
        try:
            if grants:
                self._have_opened(wire.pack_trees(trees), member.trees)
            member.sandbox.give(packed, stdin)
        except BaseException:
            member.discard()
            raise
        os.close(member.trees)
        return member.sandbox, member.cgroup

    def opens(self, owner: tuple[int, int], grants: list[Grant]) -> bool:
        """Whether the opener can mount overlays over these folders. The mounts are closed at once.
        A refusal for another reason is left to the execution."""
        tried: list[Grant] = [{**grant, "tried": True} for grant in grants]
        trees: Trees = {"owner_uid": owner[0], "owner_gid": owner[1], "grants": tried}
        with self._lock:
            self._ensure_started()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self._have_opened(wire.pack_trees(trees), theirs.fileno())
            answer, opened = receive(ours)
        for descriptor in opened:
            os.close(descriptor)
        if not answer:
            raise _died()
        return not answer.startswith(_NO_OVERLAY)

    def _is_ours(self, request: Request) -> bool:
        """Whether the executable is the same file as the spawner's interpreter."""
        found = (request["executable_device"], request["executable_inode"])
        return found == self._interpreter and not request["steady"]

    def _have_opened(self, order: bytes, trees: int) -> None:
        opener = self._opener
        try:
            if opener is None:
                raise BrokenPipeError
            pass_document(opener, order, [trees])
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                raise not_passed() from error
            with self._lock:  # without the opener the spawner is of no use
                self._discard()
            raise _died() from error

    def _take(self, make: Make) -> _Member:
        with self._lock:
            server = self._ensure_started()
            self._await_ready(server)
            kind = _kind(make)
            self._lately.pop(kind, None)
            self._lately[kind] = make
            self._calm += 1
            found = self._pop(kind)
        if found is None and self._receiving.acquire(blocking=False):
            try:
                while self._has_messages(server):
                    with contextlib.suppress(_NotMade):  # of an earlier request
                        self._receive_one(server)
            finally:
                self._receiving.release()
            with self._lock:
                found = self._pop(kind)
        return found or self._await_member(server, make)

    def _has_messages(self, server: socket.socket) -> bool:
        with self._lock:  # no other thread closes it meanwhile
            if server is not self._socket:
                raise _died()
            if not self._ready:  # its first message is no member: `_await_ready` reads it
                return False
            poll = select.poll()
            poll.register(server, select.POLLIN)
            return bool(poll.poll(0))

    def take_in(self) -> None:
        """Receive members that were made meanwhile, so that the next execution finds them."""
        server = self._socket
        if server is None or not self._asked or not self._receiving.acquire(blocking=False):
            return
        # The next request gets the error.
        with contextlib.suppress(SandboxUnavailable):
            try:
                while self._has_messages(server):
                    self._receive_one(server)
            finally:
                self._receiving.release()

    def _await_member(self, server: socket.socket, make: Make) -> _Member:
        kind = _kind(make)
        with self._lock:
            self._calm = 0
            self._wanted = min(self._pool_size, self._wanted + 1)
            self._waiting[kind] += 1
            before = len(self._asked)  # a failure of these says nothing about ours
        asked = 0
        try:
            while True:
                with self._receiving:
                    with self._lock:
                        if server is not self._socket:
                            raise _died()  # another thread found out first
                        found = self._pop(kind)
                        # Also after a member that was dead on arrival: no other thread asks for us.
                        if found is None and self._asked.count(kind) < self._waiting[kind]:
                            asked += 1
                            if asked > _MOST_ASKED:
                                raise _no_member_lives()
                            self._ask(server, make)
                    if found is not None:
                        return found
                    before -= 1
                    try:
                        self._receive_one(server)
                    except _NotMade:
                        if before < 0:
                            raise
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _died() from error
        finally:
            with self._lock:
                self._waiting[kind] -= 1

    def _pop(self, kind: Kind) -> _Member | None:
        for member in self._members:
            if member.kind == kind:
                self._members.remove(member)
                if member.sandbox.is_alive():
                    return member
                member.discard()  # killed while it waited
                return self._pop(kind)
        return None

    def _receive_one(self, server: socket.socket) -> None:
        """Wait for the spawner's next message: a member, or an error."""
        try:
            packet, descriptors = receive(server)
        except DescriptorsLost as lost:
            with self._lock:
                if server is self._socket:
                    self._drop(lost.packet)
            raise no_descriptors() from lost
        except OSError:
            packet, descriptors = b"", []
        with self._lock:
            if not packet:
                raise _died()
            if server is not self._socket:  # it died, and another thread started a new one
                answer = json.loads(packet)
                if "error" not in answer:
                    self._member((True, False, False), answer, descriptors).discard()
                raise _died()
            self._admit(packet, descriptors)

    def _admit(self, packet: bytes, descriptors: list[int]) -> None:
        answer: dict[str, Any] = json.loads(packet)
        kind = self._asked.popleft()
        if "error" in answer:
            raise _NotMade(
                f"The sandbox could not be made: {answer['error']}.",
                remedy="`actum doctor` lists what this host supports.",
            )
        self._members.append(self._member(kind, answer, descriptors))
        self._last_number = int(answer["group"].removeprefix(self._mark))

    def _drop(self, packet: bytes) -> None:
        """Drop a member whose descriptors could not be received: its sockets have no other end any
        more, so it exits, and its groups are ours to remove."""
        answer = json.loads(packet)
        self._asked.popleft()
        if self._cgroups is not None and "error" not in answer:
            with contextlib.suppress(OSError):  # else the next sweep removes it
                self._cgroups.made(answer["group"], -1).remove()
            self._last_number = int(answer["group"].removeprefix(self._mark))

    def _member(self, kind: Kind, answer: dict[str, Any], descriptors: list[int]) -> _Member:
        if self._cgroups is None:
            raise AssertionError("a member was made without a recipe for its groups")
        sandbox = Sandbox(
            control=socket.socket(fileno=descriptors[wire.CONTROL]),
            stdin=descriptors[wire.STDIN],
            stdout=descriptors[wire.STDOUT],
            stderr=descriptors[wire.STDERR],
            pidfd=descriptors[wire.PIDFD],
            start=descriptors[wire.START],
        )
        cgroup = self._cgroups.made(answer["group"], descriptors[wire.OOM])
        trees = descriptors[wire.TREES]
        return _Member(kind, sandbox, cgroup, trees)

    def refill(self) -> None:
        """An execution has ended: request members for the next one. Returns at once."""
        if not self._pool_size:
            return
        unused: list[_Member] = []
        with self._lock:
            server = self._socket
            if server is None or not self._equipped:
                return
            if self._calm > _CALM and self._wanted > 1:
                self._calm = 0
                self._wanted -= 1
            shares = self._shares()
            ready = dict.fromkeys(shares, 0)
            for member in self._members:
                ready[member.kind] = ready.get(member.kind, 0) + 1
            # If the spawner has died, the next execution starts another.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for kind, share in shares.items():
                    for _ in range(share - ready[kind] - self._asked.count(kind)):
                        self._ask(server, self._lately[kind])
            over = len(self._members) + len(self._asked) - self._pool_size
            for member in [*self._members] if over > 0 else ():
                if over > 0 and ready[member.kind] > shares.get(member.kind, 0):
                    over -= 1
                    ready[member.kind] -= 1
                    self._members.remove(member)
                    unused.append(member)
        for member in unused:
            member.discard()

    def _shares(self) -> dict[Kind, int]:
        """How many members of each kind to keep: of the newest as many as are wanted, of those
        before it one each, for callers that alternate."""
        *others, newest = [*self._lately][-_KINDS:]
        shares = dict.fromkeys(others, 1)
        shares[newest] = max(1, min(self._wanted, self._pool_size - len(others)))
        return shares

    def teach(self) -> None:
        """Python snippets are in use: later members can run them without an exec."""
        if self._taught:
            return
        with self._lock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if not self._taught and self._equipped and self._socket is not None:
                self._taught = True
                pass_packet(self._socket, wire.LEARN, [])

    def _await_ready(self, server: socket.socket) -> None:
        if self._ready:
            return
        try:
            answer = server.recv(16)
        except ConnectionResetError:
            answer = b""  # it died without reading our messages
        if not answer:
            process = cast("subprocess.Popen[bytes] | Clone", self._process)
            _out, text = process.communicate()
            last = text.decode(errors="replace").strip().splitlines()[-1:]
            self._discard()
            raise SandboxUnavailable(
                f"The spawner could not set itself up: {''.join(last)}.",
                remedy="`actum doctor` lists what this host lacks.",
            )
        self._ready = True

    def _discard(self) -> None:
        """End the spawner, and with it every member; remove their groups."""
        if self._socket is not None and self._process is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None
            os.close(self._pidfd)
            self._receive_rest(self._socket)
            self._remove_unreported()
            self._socket.close()
            self._socket = None
        if self._opener is not None:
            self._opener.close()
            self._opener = None
        for member in self._members:
            member.discard()
        self._members = []
        self._asked.clear()

    def _receive_rest(self, server: socket.socket) -> None:
        """Receive members that were made and not received yet: their groups are ours to remove."""
        resets = 0
        while self._asked and resets < 2:
            try:
                packet, descriptors = receive(server)
            except ConnectionResetError:
                resets += 1  # reported once, before the pending messages
                continue
            except DescriptorsLost as lost:
                self._drop(lost.packet)
                continue
            if not packet:
                return
            if packet != _READY:
                with contextlib.suppress(SandboxUnavailable):
                    self._admit(packet, descriptors)

    def _remove_unreported(self) -> None:
        """Groups of a member that was just being made when the spawner was killed."""
        from actum.sandbox.cgroup import remove_folder

        for folder in self._folders:
            for name in os.listdir(folder):
                number = name.removeprefix(self._mark)
                if number != name and len(number) == _DIGITS and int(number) > self._last_number:
                    with contextlib.suppress(OSError):  # else the next sweep removes it
                        remove_folder(f"{folder}/{name}")
        self._folders, self._last_number = [], 0

    def close(self) -> None:
        """Close the socket; the spawner ends, and with it every sandbox still alive."""
        with self._lock:
            self._discard()


def _started(interpreter: str, numbers: list[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [interpreter, *ALONE, "-c", _BOOT, _SOURCE, *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=numbers,
        env={"PYTHONHASHSEED": HASH_SEED},
        cwd="/",
        start_new_session=True,
    )


def _in_memory(content: bytes) -> BinaryIO:
    """A file with `content` that has no name. The spawner copies the bytes of this process, not the
    installed file, which may have been rebuilt meanwhile."""
    file = open(os.memfd_create("actum-init"), "wb")  # noqa: SIM115 -- the caller closes it
    file.write(content)
    file.flush()
    return file


def _kind(make: Make) -> Kind:
    return make["allow_fork"], make["steady"], make["interpreter"]


class _SpawnerDied(SandboxUnavailable):
    pass


def _no_member_lives() -> SandboxUnavailable:
    return SandboxUnavailable(
        f"{_MOST_ASKED} sandboxes in a row died as they were prepared; the tool was not started.",
        remedy="Check the host's log for what kills them; `actum doctor` lists what is missing.",
    )


def _died() -> _SpawnerDied:
    return _SpawnerDied(
        "The spawner process died before it took the order; the tool was not started.",
        remedy="Run the command again; `actum doctor` lists what this host supports.",
    )
