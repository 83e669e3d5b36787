"""A tool that has run its last instruction can leave no work to the kernel."""

from __future__ import annotations

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_SIZE = 8 << 20
_UNFINISHED = f"""
import ctypes, mmap, os, struct
libc = ctypes.CDLL(None, use_errno=True)
SETUP, SUBMIT, PWRITE, PART = 206, 209, 1, 1 << 20
context = ctypes.c_ulong(0)
if libc.syscall(SETUP, 512, ctypes.byref(context)):
    print(os.strerror(ctypes.get_errno()))
    raise SystemExit
memory = mmap.mmap(-1, PART)
memory.write(b"X" * PART)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
busy, file = (os.open(name, os.O_RDWR | os.O_DIRECT) for name in ("busy", "made"))
blocks = [
    ctypes.create_string_buffer(
        struct.pack("<QIiHhIQQqQII", 0, 0, 0, PWRITE, 0, into, address, PART, at, 0, 0, 0)
    )
    for into in (*[busy] * 24, file)
    for at in range(0, {_SIZE}, PART)
]
array = (ctypes.c_void_p * len(blocks))(*map(ctypes.addressof, blocks))
assert libc.syscall(SUBMIT, context, len(blocks), array) == len(blocks)
os.write(1, b"submitted")
os._exit(0)
"""


def test_writes_that_outlast_their_process_cannot_be_asked_for(jail: Jail) -> None:
    """Direct writes that were asked for and not waited for: the process is gone before they are."""
    made = jail.work / "made"
    for path in (made, jail.work / "busy"):
        path.write_bytes(bytes(_SIZE))
        path.chmod(0o666)
    result = jail.python(_UNFINISHED, limits={"outputs.output_files": ["made"]})
    assert jail.said(result) == "Function not implemented"
    assert [(it.kind, it.target) for it in result.denials] == [("syscall", "io_setup")]
    assert made.read_bytes() == bytes(_SIZE)
    assert jail.outside_python(_UNFINISHED) == "submitted"
