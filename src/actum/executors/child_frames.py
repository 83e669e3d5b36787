"""The protocol between the host and a one-shot child: one frame in, one frame out.

Both sides share it and the zygote imports it, so it imports only `struct`. The child's frame is
untrusted: code inside the child can write any bytes, so a frame can only state a value or a
failure, never how the pipeline judges it.
"""

from __future__ import annotations

import struct

# Operations that the host requests.
EXECUTE, DESCRIBE, COMPILE = 1, 2, 3

# Kinds of replies.
VALUE, NOTHING, RAISED, NOT_JSON, OVER_LIMIT, CHANGED, DESCRIPTION, CODE, UNLOADABLE = range(1, 10)

#: operation, bytes of code, bytes of body, then three limits: bytes, depth, list items
REQUEST = struct.Struct("!BIIIII")
#: kind, bytes of body
REPLY = struct.Struct("!BI")

#: The executor's code has this file name, so that a line number can be found in a traceback.
FILE_NAME = "<executor>"

#: The host orders a child by sending the pid of the one that it no longer needs, in digits. The
#: reply is the new child's pid and two descriptors: a socket to the zygote, and one to the child.
NO_CHILD = 0
#: On the first socket the host requests the child's end; closing it means the same. The reply is
#: the wait status in digits.
END = b"end"

#: The part that a child may have before the call is on record (head and code), and the rest.
Request = tuple[bytes, bytes]


def request(
    operation: int, code: bytes, body: bytes, limits: tuple[int, int, int] = (0, 0, 0)
) -> Request:
    return REQUEST.pack(operation, len(code), len(body), *limits) + code, body
