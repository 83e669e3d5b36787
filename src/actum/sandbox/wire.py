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

    class Order(TypedDict):
        """What the spawner itself needs to know; everything else is the init's."""

        owner_uid: int
        owner_gid: int

    class Report(TypedDict, total=False):
        """started: the tool runs. ended: the whole tree is gone. failed: nothing was started."""

        kind: str
        wait_status: int
        violation: str
        denials: list[tuple[str, str, int]]
        denials_total: int
        reason: str
        message: str


#: Host -> init: SIGTERM to everything inside. Closing the socket means: you may go.
TERMINATE = b"T"

#: Order of descriptors in the message that starts a sandbox.
CONTROL, REQUEST, STDIN, STDOUT, STDERR, TASK_LIMIT = range(6)
#: What follows are the doors of the cgroups.
FIXED_DESCRIPTORS = 6
MAX_DESCRIPTORS = 16
MAX_PACKET = 65_536
MAX_DENIALS = 64
