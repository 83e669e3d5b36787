from __future__ import annotations

import hashlib
import os
import threading
import tracemalloc
from collections.abc import Iterator
from io import FileIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.capture.model import Stream
from actum.capture.streams import StreamKeeper, drain
from actum.contract.limits import STDERR_BYTES, STDOUT_BYTES

MIB = 1 << 20
GIB_OF_ZEROS_SHA256 = "49bc20df15e412a64472421e13fe86ff1c5165e18b2afccf160d4dc19fe68a14"


@pytest.fixture
def pipe() -> Iterator[tuple[int, FileIO]]:
    """A non-blocking end to read and a file to write; closing the file twice is harmless."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read_end, False)
    with open(write_end, "wb", buffering=0) as writer:
        yield read_end, writer
    os.close(read_end)


@given(chunks=st.lists(st.binary(max_size=200)), limit=st.integers(0, 400))
def test_a_keeper_keeps_the_first_bytes_and_knows_the_whole(chunks: list[bytes], limit: int):
    keeper = StreamKeeper(limit)
    for chunk in chunks:
        keeper.feed(chunk)
    whole = b"".join(chunks)
    assert keeper.finish() == Stream(
        kept=whole[:limit],
        total_bytes=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
    )
    assert keeper.finish().truncated == (len(whole) > limit)


@pytest.mark.parametrize("limit", [STDOUT_BYTES, STDERR_BYTES])
def test_exactly_the_limit_is_kept_and_one_byte_more_is_said_to_be_cut(limit: int):
    keeper = StreamKeeper(limit)
    keeper.feed(b"x" * limit)
    assert not keeper.finish().truncated
    keeper.feed(b"y")
    stream = keeper.finish()
    assert (stream.kept, stream.total_bytes, stream.truncated) == (b"x" * limit, limit + 1, True)


def test_a_negative_limit_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="limit: -1"):
        StreamKeeper(-1)


def test_draining_an_empty_pipe_says_that_more_may_come(pipe: tuple[int, FileIO]):
    keeper = StreamKeeper(10)
    assert drain(pipe[0], keeper) is True
    assert keeper.finish().total_bytes == 0


def test_draining_takes_what_is_there_and_tells_the_end_of_the_stream(pipe: tuple[int, FileIO]):
    read_end, writer = pipe
    keeper, heard = StreamKeeper(4), []
    writer.write(b"one two")
    assert drain(read_end, keeper, heard.append) is True
    writer.write(b" three")
    writer.close()
    assert drain(read_end, keeper, heard.append) is False
    assert b"".join(heard) == b"one two three"
    assert keeper.finish() == Stream(
        kept=b"one ", total_bytes=13, sha256=hashlib.sha256(b"one two three").hexdigest()
    )


def test_a_chunk_that_was_handed_on_does_not_change_with_the_next_read(pipe: tuple[int, FileIO]):
    read_end, writer = pipe
    keeper, heard = StreamKeeper(0), []
    for word in (b"first", b"other"):
        writer.write(word)
        drain(read_end, keeper, heard.append)
    assert heard == [b"first", b"other"]


def test_an_endless_writer_cannot_hold_the_reader():
    # /dev/zero never blocks and never ends: an unbounded loop would not come back.
    endless = os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC)
    try:
        keeper = StreamKeeper(1)
        assert drain(endless, keeper) is True
        assert keeper.finish().total_bytes == MIB
    finally:
        os.close(endless)


@pytest.mark.req("000-78")
def test_a_gibibyte_is_digested_exactly_in_flat_memory(pipe: tuple[int, FileIO]):
    read_end, writer = pipe
    block = bytes(MIB)

    def write_a_gibibyte() -> None:
        for _ in range(1024):
            left = memoryview(block)
            while left:
                left = left[writer.write(left) :]
        writer.close()

    os.set_blocking(read_end, True)  # lets the test sleep in the kernel instead of spinning
    tool = threading.Thread(target=write_a_gibibyte)
    keeper = StreamKeeper(STDOUT_BYTES)
    tracemalloc.start()
    try:
        tool.start()
        while drain(read_end, keeper):
            pass
        tool.join()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    stream = keeper.finish()
    assert stream.total_bytes == 1024 * MIB
    assert stream.sha256 == GIB_OF_ZEROS_SHA256
    assert stream.kept == block
    assert stream.truncated
    assert peak < 4 * MIB
