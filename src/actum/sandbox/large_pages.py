"""The interpreter's code in large pages, for all that are forked from this process.

When a snippet has ended, its answer waits until the kernel has taken its memory apart, page by
page; a third of these pages are code of the interpreter, which every fork maps anew. Two large ones
in their place cost next to nothing, and code is found in them at less cost while a snippet runs.

The same bytes at the same addresses. At no time can they be written and executed at once; constants
that lie beside the code can be executed from then on, which gives nothing to those who may run any
code. Where the kernel has no large pages to give, or is told not to give any, nothing is changed.
"""

from __future__ import annotations

from actum import kernel

_LARGE = 2 << 20


class Mapping:
    """What /proc/self/smaps says of a piece of memory."""

    own_kib = 0  #: of pages that are no file's, or not any more
    large_kib = 0

    def __init__(self, place: str, mode: str, file: str) -> None:
        self.start, self.end = (int(each, 16) for each in place.split("-"))
        self.mode = mode  #: as `r-xp`
        self.file = file  #: its device and number


def hold_code() -> bool:
    """Whether the code of this process, which has one thread, was put into large pages."""
    try:
        start, size = _whole_pages(*_code())
        return size > 0 and _exchange(start, size)
    except OSError:
        return False  # the kernel does not tell, or does not give: all is as it was


def mappings() -> list[Mapping]:
    found: list[Mapping] = []
    with open("/proc/self/smaps") as file:
        for line in file:
            first, *words = line.split()
            if first == "Anonymous:":
                found[-1].own_kib = int(words[0])
            elif first == "AnonHugePages:":
                found[-1].large_kib = int(words[0])
            elif not first.endswith(":"):
                mode, _offset, device, number = words[:4]
                found.append(Mapping(first, mode, f"{device} {number}"))
    return found


def _code() -> tuple[int, int]:
    """From where to where the interpreter's file lies around its code, as it is on the disk."""
    within, start, end, file = kernel.own_code(), 0, 0, ""
    for each in mappings():
        if each.own_kib or each.mode not in ("r--p", "r-xp"):
            continue
        if (each.start, each.file) != (end, file):
            if start <= within < end:
                break
            start, file = each.start, each.file
        end = each.end
    return (start, end) if start <= within < end else (0, 0)


def _whole_pages(start: int, end: int) -> tuple[int, int]:
    """(start, size) of the large pages that find room in it."""
    first = _up(start)
    return first, end // _LARGE * _LARGE - first


def _up(address: int) -> int:
    return -(-address // _LARGE) * _LARGE


def _exchange(start: int, size: int) -> bool:
    room = kernel.take_memory(size + _LARGE)
    copy = _up(room)
    kernel.give_memory_back(room, copy - room)
    kernel.give_memory_back(copy + size, room + _LARGE - copy)
    try:
        kernel.ask_for_large_pages(copy, size)
        kernel.copy_memory(copy, start, size)
        kernel.make_code(copy, size)
        large_kib = next((each.large_kib for each in mappings() if each.start == copy), 0)
        if large_kib << 10 == size:
            kernel.move_memory(start, copy, size)  # the next instruction is found in the copy
            return True
    except OSError:
        kernel.give_memory_back(copy, size)
        raise
    kernel.give_memory_back(copy, size)
    return False
