"""What the host and a sandbox's init say to each other.

The request travels as JSON in a sealed memory file, because it may be larger than a packet. After
that there is one control socket per sandbox: the init reports, the host says "terminate" or hangs
up. Everything the init reports is written by our code; the payload never holds this socket.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Grant(TypedDict):
        path: str
        write: bool
        device: int
        inode: int

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
        scratch_bytes: int
        artifacts_bytes: int
        max_children: int
        etc: dict[str, str]  #: files of this sandbox's own /etc: hosts, resolv.conf, ca.pem
        addresses: list[str]  #: put on the sandbox's loopback, with prefix length
        listen: list[tuple[str, int]]  #: egress: bound before the tool starts, passed to the host
        provided: dict[str, str]  #: name -> base64 of files below `PROVIDED`, read-only
        resolver: str  #: address for the name service, or "" for none
        steady: bool  #: no randomised addresses
        secrets: list[str]  #: what the tool can read, once, from its descriptors 3, 4, …

    class Order(TypedDict):
        """What the spawner itself needs to know; everything else is the init's."""

        owner_uid: int
        owner_gid: int

    class Report(TypedDict, total=False):
        """started: the tool runs. ended: the whole tree is gone. failed: nothing was started.
        listening: sockets of the sandbox's network namespace, for the host to accept on."""

        kind: str
        address: str
        ports: list[int]
        wait_status: int
        violation: str
        denials: list[tuple[str, str, int]]
        denials_total: int
        scratch_bytes: int  #: most that was seen taken of /tmp or /dev/shm
        artifacts_bytes: int
        full: list[str]  #: which of the two was seen without room
        reason: str
        message: str


#: Spawner -> member: here is your order; the last descriptor is an idmap, or there is none.
WITH_IDMAP, WITHOUT_IDMAP = b"I", b"O"

#: Host -> init: the start is on record, let the tool run.
GO = b"G"
#: Host -> init: SIGTERM to everything inside. Closing the socket means: you may go.
TERMINATE = b"T"

#: Descriptors that fit into one message (the kernel's own bound is 253).
MAX_PASSED = 250

#: Order of descriptors in the message that starts a sandbox.
CONTROL, REQUEST, STDIN, STDOUT, STDERR, TASK_LIMIT = range(6)
#: What follows are the doors of the cgroups: `tasks` files (version 1) or one folder (version 2).
FIXED_DESCRIPTORS = 6
MAX_DESCRIPTORS = 16
MAX_PACKET = 65_536
MAX_DENIALS = 64
