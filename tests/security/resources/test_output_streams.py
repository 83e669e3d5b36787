"""Streams are drained whatever comes, kept up to a bound, and told the truth about."""

from __future__ import annotations

import hashlib

import pytest

from actum import Outcome
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

GIB = 1 << 30


def _resident_kib() -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1])


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


@pytest.mark.req("000-73", "000-78", "000-181", "004-9")
def test_a_gibibyte_of_output_is_counted_and_leaves_host_memory_flat(jail: Jail) -> None:
    jail.sh("head -c 4M /dev/zero").check()  # buffers that the first large output makes
    _forget_peak()
    before = _resident_kib()
    result = jail.sh(f"head -c {GIB} /dev/zero", timeout="120s")
    grown = _resident_kib() - before
    assert result.streams is not None
    facts = result.streams["stdout"]
    assert (facts.bytes, facts.kept, facts.truncated) == (GIB, 1 << 20, True)
    digest = hashlib.sha256()
    block = bytes(1 << 20)
    for _ in range(1 << 10):
        digest.update(block)
    assert facts.sha256 == digest.hexdigest()
    assert grown < 16 << 10


@pytest.mark.req("000-73", "000-74", "000-78", "004-9")
def test_both_streams_flooded_at_once_without_a_newline(jail: Jail) -> None:
    script = "head -c 20M /dev/zero >&2 & head -c 20M /dev/zero; wait; exit 3"
    result = jail.sh(script)
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.streams is not None
    out, err = result.streams["stdout"], result.streams["stderr"]
    assert (out.bytes, out.kept, out.truncated) == (20 << 20, 1 << 20, True)
    assert (err.bytes, err.kept, err.truncated) == (20 << 20, 256 << 10, True)
    expected = hashlib.sha256(bytes(20 << 20)).hexdigest()
    assert out.sha256 == err.sha256 == expected


@pytest.mark.req("000-78")
def test_many_tiny_writes_are_all_counted(jail: Jail) -> None:
    program = "import os\nfor n in range(200_000): os.write(1, b'x')"
    result = jail.python(program)
    assert result.streams is not None
    assert result.streams["stdout"].bytes == 200_000


@pytest.mark.req("000-73", "000-74")
def test_the_bound_itself_is_not_truncated(jail: Jail) -> None:
    result = jail.sh("head -c 1048576 /dev/zero; head -c 262144 /dev/zero >&2")
    assert result.streams is not None
    assert not result.streams["stdout"].truncated
    assert not result.streams["stderr"].truncated


def test_output_that_is_not_text_comes_back_exactly(jail: Jail) -> None:
    import base64

    result = jail.python("import os; os.write(1, bytes(range(256)))")
    assert result.result is not None
    assert result.streams is not None
    assert result.streams["stdout"].encoding == "base64"
    assert base64.b64decode(result.result.stdout) == bytes(range(256))
