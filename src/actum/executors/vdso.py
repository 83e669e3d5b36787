"""Removes what a process can read without a system call: the time, and 16 random bytes.

The vDSO is code of the kernel that reads the clock from pages which the kernel maps beside it
(``[vvar]``), where no filter applies. This module unmaps these pages. It replaces the code by a
page of its own at the same address, because libc has stored the addresses of its functions: each
makes the system call, which the filter checks like any other, and all other bytes are traps. The
random bytes that the kernel passes to libc (AT_RANDOM) are set to zero; libc has already used them.
"""

from __future__ import annotations

import ctypes
import struct

from actum import kernel

_AT_RANDOM, _AT_SYSINFO_EHDR = 25, 33
_SYS_MMAP, _SYS_MPROTECT, _SYS_MUNMAP, _SYS_MREMAP = 9, 10, 11, 25
_READ, _WRITE, _EXEC = 1, 2, 4
_MAP_PRIVATE_ANONYMOUS, _NO_FILE = 0x22, -1
_MREMAP_MAYMOVE_FIXED = 3
_TRAP = b"\xcc"  # int3

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
    """Unmap the vDSO and the pages that it reads; returns the number of replaced functions."""
    base = _auxiliary().get(_AT_SYSINFO_EHDR, 0)
    if not base:
        return 0
    functions = _functions(base)
    for start, end in _kernel_mappings():
        if start <= base < end:
            _replace(start, end, functions)
        else:
            _call(_SYS_MUNMAP, start, end - start)
    if left := _kernel_mappings():
        raise OSError(f"{len(left)} pages of the kernel's clock could not be unmapped")
    return len(functions)


def _replace(start: int, end: int, functions: dict[bytes, int]) -> None:
    code = bytearray(_TRAP * (end - start))
    for name, address in functions.items():
        # mov eax, number; syscall; ret
        stub = b"\xb8" + struct.pack("<I", _NUMBERS[name]) + b"\x0f\x05\xc3"
        code[address - start : address - start + len(stub)] = stub
    made = _call(_SYS_MMAP, 0, len(code), _READ | _WRITE, _MAP_PRIVATE_ANONYMOUS, _NO_FILE, 0)
    ctypes.memmove(made, bytes(code), len(code))
    _call(_SYS_MPROTECT, made, len(code), _READ | _EXEC)
    # In one step, so that no function is ever missing.
    _call(_SYS_MREMAP, made, len(code), len(code), _MREMAP_MAYMOVE_FIXED, start)


def forget_random_bytes() -> None:
    address = _auxiliary().get(_AT_RANDOM, 0)
    if address:
        ctypes.memset(address, 0, 16)


def close_cycle_counter() -> None:
    """Make every instruction that reads the processor's cycle counter fault."""
    pr_set_tsc, sigsegv = 26, 2
    kernel.prctl(pr_set_tsc, sigsegv)


def _auxiliary() -> dict[int, int]:
    with open("/proc/self/auxv", "rb") as file:
        return dict(struct.iter_unpack("QQ", file.read()))


def _kernel_mappings() -> list[tuple[int, int]]:
    """The vDSO, ``[vvar]`` and its kin. Not ``[vsyscall]``: its address is the kernel's, it cannot
    be read, and the filter sees every call of it."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split(maxsplit=5)
            name = fields[5].strip() if len(fields) == 6 else ""
            if name.startswith("[v") and name != "[vsyscall]":
                start, end = (int(part, 16) for part in fields[0].split("-"))
                found.append((start, end))
    return found


def _functions(base: int) -> dict[bytes, int]:
    """Addresses of the known functions; raises if there is an unknown one."""
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
    # The GNU hash table has no symbol count: the last chain ends at the highest symbol.
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


def _call(number: int, *arguments: int) -> int:
    try:
        return kernel.syscall(number, "the vDSO", *map(ctypes.c_long, arguments))
    except PermissionError as error:
        raise OSError(
            error.errno, "this kernel seals the vDSO (CONFIG_MSEAL_SYSTEM_MAPPINGS)"
        ) from error
