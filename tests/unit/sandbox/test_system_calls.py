"""The table of system calls is the kernel's, and the filter does with each what the lists say."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from actum.sandbox import seccomp
from actum.sandbox.system_calls import ALLOWED, NUMBERS

_HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
_X86_64, _I386, _AARCH64 = 0xC000003E, 0x40000003, 0xC00000B7
_UNNAMED = (335, 336, 337, 423, 470, 2**30 + 39, 2**32 - 1)

#: Allowed, but not whatever the arguments are.
_JUDGED = {
    *("clone", "socket", "socketpair", "fcntl", "ioctl", "personality", "open", "openat"),
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "creat", "mknod", "mknodat"),
    *("mmap", "memfd_create", "shmget", "prlimit64", "setrlimit"),
}


def test_every_number_is_the_kernels() -> None:
    listed = dict(re.findall(r"#define __NR_(\w+) (\d+)", _HEADER.read_text()))
    assert len(listed) > 350
    # The headers may be newer or older than the table, so names can be missing on either side.
    assert {name: str(NUMBERS[name]) for name in listed if name in NUMBERS} == {
        name: number for name, number in listed.items() if name in NUMBERS
    }
    numbers = {*NUMBERS.values()}
    assert {number for number in map(int, listed.values()) if number <= max(numbers)} <= numbers


def test_every_call_is_in_one_list() -> None:
    lists = [ALLOWED, seccomp.QUIET, seccomp.FORBIDDEN, seccomp.VIOLATION]
    named = [name for each in lists for name in each]
    assert len(named) == len({*named})
    assert {*named} <= NUMBERS.keys()
    assert {*seccomp.FORKS, *seccomp.ARGUMENTS_FORBIDDEN, *_JUDGED} <= ALLOWED


def _decided(program: bytes, number: int, architecture: int = _X86_64, *arguments: int) -> int:
    """What the kernel's interpreter makes of one call."""
    words = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    instructions = list(struct.iter_unpack("HBBI", program))
    at, loaded = 0, 0
    while True:
        code, if_true, if_false, constant = instructions[at]
        at += 1
        if code == seccomp.RETURN:
            return int(constant)
        if code == seccomp.LOAD:
            (loaded,) = struct.unpack_from("<I", words, constant)
        elif code == seccomp.AND:
            loaded &= constant
        elif code == seccomp.JUMP:
            at += constant
        else:
            holds = {
                seccomp.JEQ: loaded == constant,
                seccomp.JGE: loaded >= constant,
                seccomp.JSET: bool(loaded & constant),
            }[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("allow_fork", [True, False])
def test_the_program_says_what_the_lists_say(allow_fork: bool) -> None:
    program = seccomp.compile_filter(allow_fork=allow_fork)
    enosys = seccomp.errno_of(38)
    for name, number in NUMBERS.items():
        decision = _decided(program, number)
        if name in seccomp.QUIET:
            assert decision == enosys, name
        elif name not in ALLOWED or (name in seccomp.FORKS and not allow_fork):
            assert decision == seccomp.NOTIFY, name
        elif name not in _JUDGED:
            assert decision == seccomp.ALLOW, name
    assert {_decided(program, number) for number in _UNNAMED} == {seccomp.NOTIFY}


def test_the_judged_calls_are_judged() -> None:
    """With no argument that has a meaning, each of them is refused or allowed by its arguments."""
    program = seccomp.compile_filter(allow_fork=True)
    for name in _JUDGED:
        answers = {
            _decided(program, NUMBERS[name], _X86_64, *[argument] * 6)
            for argument in (0, 1, 2, 4, 1_024, 0x5412, 0o4000, 0o100 | 0o4000, 0x40000, 2**28)
        }
        assert len(answers) > 1, name


@pytest.mark.parametrize("architecture", [_I386, _AARCH64])
def test_another_table_of_numbers_is_death(architecture: int) -> None:
    program = seccomp.compile_filter(allow_fork=True)
    numbers = range(max(NUMBERS.values()) + 9)
    assert {_decided(program, n, architecture) for n in numbers} == {seccomp.KILL_PROCESS}


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/sandbox.md", "docs/threat-model.md"])
def test_the_pages_have_the_number_of_the_list(page: str) -> None:
    text = (Path(__file__).parents[3] / page).read_text()
    assert {*re.findall(r"(\d+) (?:system calls|can be made)", text)} == {str(len(ALLOWED))}


def test_the_program_is_small_enough_to_be_installed_quickly() -> None:
    """The kernel runs it once for each number that it knows."""
    assert len(seccomp.compile_filter(allow_fork=True)) // 8 < 400
