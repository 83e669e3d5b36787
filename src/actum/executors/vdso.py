"""Takes away what a process knows without asking the kernel: the time, and 16 random bytes.

The vDSO answers clock calls from shared memory, where no filter can look. Each of its functions is
overwritten, in this process's private copy, with the plain system call, which the filter then
judges like any other. The random bytes that the kernel leaves for libc are set to zero; libc has
taken what it needs long before.
"""

from __future__ import annotations

import ctypes
import struct

from actum import kernel

_AT_RANDOM, _AT_SYSINFO_EHDR = 25, 33
_SYS_MPROTECT = 10
_READ, _WRITE, _EXEC = 1, 2, 4

_NUMBERS = {
    b"clock_gettime": 228,
    b"gettimeofday": 96,
    b"time": 201,
    b"clock_getres": 229,
    b"getcpu": 309,
    b"getrandom": 318,
}
_DT_STRTAB, _DT_SYMTAB, _DT_HASH, _DT_GNU_HASH = 5, 6, 4, 0x6FFFFEF5
_PT_LOAD, _PT_DYNAMIC = 1, 2
_FUNCTION = 2


def close_clock() -> int:
    """Overwrite every clock function of the vDSO; returns how many were found."""
    base = _auxiliary().get(_AT_SYSINFO_EHDR, 0)
    if not base:
        return 0
    functions = _functions(base)
    start, end = _extent(base)  # all of it: the kernel refuses to split this mapping
    _protect(start, end - start, _READ | _WRITE | _EXEC)
    for name, address in functions.items():
        # mov eax, number; syscall; ret
        code = b"\xb8" + struct.pack("<I", _NUMBERS[name]) + b"\x0f\x05\xc3"
        ctypes.memmove(address, code, len(code))
    _protect(start, end - start, _READ | _EXEC)
    return len(functions)


def forget_random_bytes() -> None:
    address = _auxiliary().get(_AT_RANDOM, 0)
    if address:
        ctypes.memset(address, 0, 16)


def close_cycle_counter() -> None:
    """Reading the processor's cycle counter, wherever such an instruction is found, is a fault."""
    pr_set_tsc, sigsegv = 26, 2
    kernel.prctl(pr_set_tsc, sigsegv)


def _auxiliary() -> dict[int, int]:
    with open("/proc/self/auxv", "rb") as file:
        return dict(struct.iter_unpack("QQ", file.read()))


def _extent(base: int) -> tuple[int, int]:
    with open("/proc/self/maps", encoding="ascii") as file:
        for line in file:
            start, end = (int(part, 16) for part in line.split(" ", 1)[0].split("-"))
            if start <= base < end:
                return start, end
    raise OSError("the vDSO is not in /proc/self/maps")


def _functions(base: int) -> dict[bytes, int]:
    """Addresses of the functions we know; raises if there is one that we do not."""
    header = ctypes.string_at(base, 64)
    offset, size, count = (
        *struct.unpack_from("<Q", header, 32),
        *struct.unpack_from("<HH", header, 54),
    )
    load_bias, dynamic = base, 0
    for index in range(count):
        kind, _flags, file_offset, address = struct.unpack_from(
            "<IIQQ", ctypes.string_at(base + offset + index * size, 56)
        )
        if kind == _PT_LOAD:
            load_bias = base + file_offset - address
        elif kind == _PT_DYNAMIC:
            dynamic = base + file_offset
    tags: dict[int, int] = {}
    while (entry := struct.unpack("<QQ", ctypes.string_at(dynamic, 16)))[0]:
        tags[entry[0]] = entry[1] + load_bias
        dynamic += 16
    found: dict[bytes, int] = {}
    for index in range(_symbol_count(tags)):
        name_at, info, _other, section, value = struct.unpack_from(
            "<IBBHQ", ctypes.string_at(tags[_DT_SYMTAB] + 24 * index, 24)
        )
        if info & 0xF == _FUNCTION and section:
            name = ctypes.string_at(tags[_DT_STRTAB] + name_at).removeprefix(b"__vdso_")
            if name in _NUMBERS:
                found[name] = load_bias + value
            elif b"sgx" not in name:
                raise OSError(f"the vDSO has a function {name!r} that is not known here")
    return found


def _symbol_count(tags: dict[int, int]) -> int:
    if _DT_HASH in tags:
        return int(struct.unpack("<II", ctypes.string_at(tags[_DT_HASH], 8))[1])
    # The GNU table holds no count: the last chain ends at the highest symbol.
    buckets, offset, bloom, _shift = struct.unpack(
        "<IIII", ctypes.string_at(tags[_DT_GNU_HASH], 16)
    )
    table = tags[_DT_GNU_HASH] + 16 + 8 * bloom
    heads = struct.unpack(f"<{buckets}I", ctypes.string_at(table, 4 * buckets))
    last = max(heads, default=0)
    if last < offset:
        return int(offset)
    chains = table + 4 * buckets
    while not struct.unpack("<I", ctypes.string_at(chains + 4 * (last - offset), 4))[0] & 1:
        last += 1
    return int(last) + 1


def _protect(start: int, length: int, rights: int) -> None:
    kernel.syscall(
        _SYS_MPROTECT,
        "mprotect vDSO",
        ctypes.c_void_p(start),
        ctypes.c_size_t(length),
        ctypes.c_ulong(rights),
    )
