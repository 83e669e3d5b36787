"""Code in large pages is the same code, in a process of its own: this one keeps what it has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_PREFERENCE = Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = pytest.mark.skipif(
    not _PREFERENCE.exists() or "[never]" in _PREFERENCE.read_text(),
    reason="this kernel gives no large pages",
)

_LOOK = """
import ctypes, hashlib, json, sys
from actum import kernel
from actum.sandbox import large_pages

def digest():
    return hashlib.sha256(ctypes.string_at(start, end - start)).hexdigest()

def around():
    return [[each.mode, each.large_kib] for each in large_pages.mappings()
            if each.start <= kernel.own_code() < each.end]

start, end = large_pages._code()
before, was = digest(), around()
{first}
held = large_pages.hold_code()
import decimal, re  # what was not loaded yet, and what raises, compiles and forks
try:
    exec(compile("1 / 0", "some", "exec"))
except ZeroDivisionError:
    pass
again = large_pages.hold_code()
print(json.dumps([held, again, before == digest(), was, around(), end - start]))
"""

_NO_LARGE_PAGES = "kernel.prctl(41, 1)"
_NO_NEW_CODE = """
def refuse(at, size):
    raise OSError(13, "no memory of yours is executed here")
kernel.make_code = refuse
"""


def looked(first: str = "") -> Any:
    words = [sys.executable, "-c", _LOOK.replace("{first}", first)]
    answered = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(answered.stdout)


def test_the_code_is_the_same_and_cannot_be_written() -> None:
    held, again, same, was, now, _size = looked()
    assert held
    assert not again  # once is enough
    assert same
    assert was == [["r-xp", 0]]
    [[mode, large_kib]] = now
    assert mode == "r-xp"
    assert large_kib >= 2 << 10


@pytest.mark.parametrize("first", [_NO_LARGE_PAGES, _NO_NEW_CODE], ids=["none given", "refused"])
def test_without_large_pages_all_stays_as_it_is(first: str) -> None:
    held, again, same, was, now, size = looked(first)
    assert size > 4 << 20  # there was something to do
    assert (held, again, same) == (False, False, True)
    assert was == now == [["r-xp", 0]]
