"""What the host and a one-shot child say to each other: one frame in, one frame out.

Shared by both sides and imported by the zygote, so nothing here but `struct`. The child's frame is
untrusted: whoever runs inside the child can write whatever it likes, so a frame can only ever say
"this is my value" or "I failed", never how the pipeline judges it.
"""

from __future__ import annotations

import struct

# What the child is asked for.
EXECUTE, DESCRIBE, COMPILE = 1, 2, 3

# What it answers with.
VALUE, NOTHING, RAISED, NOT_JSON, OVER_LIMIT, CHANGED, DESCRIPTION, CODE, UNLOADABLE = range(1, 10)

#: operation, bytes of code, bytes of body, then three limits: bytes, depth, list items
REQUEST = struct.Struct("!BIIIII")
#: kind, bytes of body
REPLY = struct.Struct("!BI")

#: The executor's code carries this name, so that a line number can be found in a traceback.
FILE_NAME = "<executor>"

#: The host orders a child by naming the one that it has no more use for, in digits. What it gets
#: is the new one's number and two descriptors: a line to the zygote, and one to the child.
NO_CHILD = 0
#: On the first line the host says that the child must die; hanging up means the same. What comes
#: back is how it ended, as a wait status in digits.
END = b"end"

#: What a child may have while the call is not yet on record (head and code), and what it may not.
Request = tuple[bytes, bytes]


def request(
    operation: int, code: bytes, body: bytes, limits: tuple[int, int, int] = (0, 0, 0)
) -> Request:
    return REQUEST.pack(operation, len(code), len(body), *limits) + code, body
