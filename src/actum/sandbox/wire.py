"""The messages between the host, the spawner and a sandbox's init.

The host requests members from the spawner: sandboxes that are prepared and wait. A member's one
request goes from the host to its init over the member's own control socket. The opener, which sees
the host's files, opens granted paths and sends them to the init as detached mounts. After that the
init sends reports, and the host sends "terminate", or closes the socket. Our code writes everything
that the init reports; the tool never holds one of these sockets. The start goes directly from the
host to the process that becomes the tool, so that no other process has to be woken. The start, and
that the request was sent, are rings of an eventfd: the kernel assumes that the writer to a socket
or a pipe is about to sleep, and wakes the reader on its CPU while another may be idle.
"""

from __future__ import annotations

import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NotRequired, TypedDict

    class Grant(TypedDict):
        path: str
        write: bool
        device: int
        inode: int
        layers: str  #: "", or the folder of the layers that take every change (opener.c)
        source: str  #: "", or the sealed copy of an input that is shown at `path`
        tried: NotRequired[bool]  #: only to test whether an overlay works with these layers

    class Limits(TypedDict):
        """Limits that a member is prepared with; if its request has others, it sets them again."""

        memory_bytes: int
        tasks: int  #: the tool itself and its children
        quota_us: int  #: processor time per period
        scratch_bytes: int

    class Make(Limits):
        """Host -> spawner: prepare one member."""

        allow_fork: bool  #: selects its filter, which cannot be changed later
        steady: bool
        interpreter: bool  #: its tool's process is a fork of the zygote, and can run a snippet

    class Trees(TypedDict):
        """Host -> opener: open these and send them over the socket in the same packet."""

        owner_uid: int
        owner_gid: int
        grants: list[Grant]

    class Recipe(TypedDict):
        """How a sandbox's control groups are made, for either version. Files are pairs of a
        folder's index and a name in it."""

        mark: str  #: prefix of the names of groups
        born_inside: bool  #: the tool's process is cloned into the group, and joins no other way
        doors: list[tuple[int, str]]  #: "0" written here moves the writer in
        once: list[tuple[int, str, str]]  #: written when a group is made
        limits: list[tuple[int, str, str]]  #: written in this order, with the values filled in
        usage: list[tuple[int, str]]  #: read when the last process is gone
        task_limit: tuple[int, str]
        oom: tuple[int, str]  #: the file that shows an OOM
        register: tuple[int, str] | None  #: the file that registers an eventfd for it

    class Request(TypedDict):
        argv: list[str]
        environment: dict[str, str]
        executable: str
        executable_device: int
        executable_inode: int
        working_directory: str
        grants: list[Grant]
        protect: list[str]
        deny: list[str]
        memory_bytes: int
        cpu_cores: int
        scratch_bytes: int
        artifacts_bytes: int
        max_children: int
        etc: dict[str, str]  #: files of this sandbox's own /etc: hosts, resolv.conf, ca.pem
        addresses: list[str]  #: put on the sandbox's loopback, with prefix length
        listen: list[tuple[str, int]]  #: egress: bound before the tool starts, passed to the host
        provided: dict[str, bytes]  #: name -> content of files below `PROVIDED`, read-only
        resolver: str  #: address for the name service, or "" for none
        steady: bool  #: no randomised addresses
        secrets: list[str]  #: values that the tool can read, once, from its descriptors 3, 4, …

    class Tool(TypedDict):
        """The part of a request that the tool's process needs."""

        argv: list[str]
        environment: dict[str, str]
        executable: str
        working_directory: str
        secrets: list[bytes]

    class Member(TypedDict):
        """Spawner -> host, with descriptors."""

        group: str  #: name of its control groups

    class Report(TypedDict, total=False):
        """ready: confined and limited, the tool waits for its start. ended: no process of the tree
        runs any more. gone: an exiting tree is freed, and the first of its control groups is
        removed. cleared, when the host has time: the other groups are too. failed: nothing was
        started. listening: sockets of the sandbox's network namespace, for the host to accept on.
        hello, limits: of a container, before it has a request.
        """

        kind: str
        address: str
        ports: list[int]
        wait_status: int
        violation: str
        #: Covers that were detached by the host: numbers in `protect` followed by `deny`.
        lost_covers: list[int]
        #: "", or the path of a sealed input, or of a folder with layers, that was replaced
        seal_lost: str
        #: Kind, target, monotonic time of the first one, and count.
        denials: list[tuple[str, str, float, int]]
        denials_total: int
        scratch_bytes: int  #: the highest measured use of /tmp or /dev/shm
        artifacts_bytes: int
        full: list[str]  #: which of the two was full
        usage: list[str]  #: texts of the files that the recipe names
        leaving: bool  #: the kernel still frees the ended processes
        removed: bool  #: the control groups, by the init
        reason: str
        message: str
        texts: list[str | None]  #: of a container: contents of the files that the host named
        spaces: list[int]  #: of a container: sizes of its private file systems


CPU_PERIOD_US = 100_000

#: Order of descriptors that come with a `Member`.
CONTROL, TREES, STDIN, STDOUT, STDERR, PIDFD, OOM, START = range(8)

#: A document follows in the same packet; or, being larger than that, as the first descriptor.
INLINE, IN_FILE = b"J", b"F"
MAX_INLINE = 32_768

#: Host -> spawner: prepare a member; prepare to run snippets.
MAKE, LEARN = b"M", b"L"
#: Spawner -> zygote, among the arguments of an init: the next descriptor in the packet.
SENT_ALONG = "#"
#: Host -> init: the request was sent. Host -> the tool's process: the start is recorded. The
#: eventfd is a semaphore, so that each reads one ring.
RING = (1).to_bytes(8, sys.byteorder)
#: Between the tool's process and the init: the next step may be, or was, taken.
GO = b"G"
#: Host -> init: SIGTERM to everything inside. Closing the socket means: exit.
TERMINATE = b"T"
#: Host -> init of a container: SIGKILL to everything inside, so that it reports the end.
KILL = b"K"
#: Host -> init: remove the other control groups now.
CLEAR = b"C"
#: Host -> init: bind these as well, and send them to the host.
LISTEN = b"L"

#: Descriptors that fit into one message (the kernel's own bound is 253).
MAX_PASSED = 250
MAX_PACKET = 65_536

# How a request is packed, for a program that trusts nothing and reads it in place (jail/wire.c):
# integers of 64 bits, a text as its length, its bytes and a NUL, a list as its length and its
# items; fields in one fixed order, those that the tool's process needs before the others.
_LENGTH, _NUMBER = struct.Struct("<I"), struct.Struct("<Q")
_TRIED = 2  #: in the place of `write`
_FILE, _SIZES, _GRANT = struct.Struct("<QQ"), struct.Struct("<QQQ"), struct.Struct("<QQQ")
_MAKE = struct.Struct("<QQQQ")


def pack(request: Request, limits: list[str]) -> bytes:
    """A request as bytes. `limits` are the texts for the files of the control groups."""
    environment = [f"{name}={text}" for name, text in request["environment"].items()]
    etc = [_text(name) + _text(text) for name, text in request["etc"].items()]
    provided = [_text(name) + _bytes(content) for name, content in request["provided"].items()]
    return b"".join(
        (
            _texts(request["argv"]),
            _texts(environment),
            _text(request["executable"]),
            _FILE.pack(request["executable_device"], request["executable_inode"]),
            _text(request["working_directory"]),
            _texts(request["secrets"]),
            _grants(request["grants"]),
            _texts(request["protect"]),
            _texts(request["deny"]),
            _texts(limits),
            _SIZES.pack(
                request["scratch_bytes"], request["artifacts_bytes"], request["max_children"]
            ),
            _list(etc),
            _texts(request["addresses"]),
            _list([_text(address) + _NUMBER.pack(port) for address, port in request["listen"]]),
            _list(provided),
            _text(request["resolver"]),
        )
    )


def pack_trees(trees: Trees) -> bytes:
    """Host -> opener."""
    return _FILE.pack(trees["owner_uid"], trees["owner_gid"]) + _grants(trees["grants"])


def pack_make(make: Make, limits: list[str]) -> bytes:
    """Host -> spawner. `limits` as in a request."""
    kind = (make["allow_fork"], make["steady"], make["interpreter"])
    return MAKE + _MAKE.pack(*kind, make["scratch_bytes"]) + _texts(limits)


def listen_order(address: str, ports: Sequence[int]) -> bytes:
    return LISTEN + _text(address) + _list([_NUMBER.pack(port) for port in ports])


def _bytes(content: bytes) -> bytes:
    return b"%b%b\0" % (_LENGTH.pack(len(content)), content)


def _text(text: str) -> bytes:
    # Independent of the locale: names are bytes.
    return _bytes(text.encode("utf-8", "surrogateescape"))


def _list(items: list[bytes]) -> bytes:
    return _LENGTH.pack(len(items)) + b"".join(items)


def _grants(grants: list[Grant]) -> bytes:
    return _list(
        [
            _text(grant["path"])
            + _GRANT.pack(_right(grant), grant["device"], grant["inode"])
            + _text(grant["layers"])
            + _text(grant["source"])
            for grant in grants
        ]
    )


def _right(grant: Grant) -> int:
    return _TRIED if grant.get("tried") else grant["write"]


def _texts(texts: list[str]) -> bytes:
    return _list([_text(each) for each in texts])


def unpack_tool(packed: bytes) -> Tool:
    """The part of a packed request that the tool's process needs."""
    at = 0

    def content() -> bytes:
        nonlocal at
        (size,) = _LENGTH.unpack_from(packed, at)
        start, at = at + _LENGTH.size, at + _LENGTH.size + size + 1
        return packed[start : at - 1]

    def contents() -> list[bytes]:
        nonlocal at
        (count,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size
        return [content() for _ in range(count)]

    argv = [os.fsdecode(each) for each in contents()]
    pairs = [os.fsdecode(each).partition("=") for each in contents()]
    executable = os.fsdecode(content())
    at += _FILE.size
    return {
        "argv": argv,
        "environment": {name: text for name, _, text in pairs},
        "executable": executable,
        "working_directory": os.fsdecode(content()),
        "secrets": contents(),
    }


def figures(request: Request) -> Limits:
    return {
        "memory_bytes": request["memory_bytes"],
        "tasks": 1 + request["max_children"],
        "quota_us": request["cpu_cores"] * CPU_PERIOD_US,
        "scratch_bytes": request["scratch_bytes"],
    }
