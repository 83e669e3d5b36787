"""Names are drawn ahead, and none is ever given twice."""

from __future__ import annotations

import os
import re
import threading

from actum.contract.ids import new_id

_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_every_one_is_a_random_uuid_of_its_own() -> None:
    found = [new_id() for _ in range(1_000)]
    assert len(set(found)) == len(found)
    assert all(_FORM.fullmatch(each) for each in found)


def test_threads_get_none_twice() -> None:
    found: list[str] = []

    def draw() -> None:
        found.extend([new_id() for _ in range(500)])

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(found)) == 4_000


def test_a_process_that_was_forked_draws_its_own() -> None:
    new_id()  # so that some are left to be inherited
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "\n".join(new_id() for _ in range(40)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        theirs = file.read().split("\n")
    assert os.waitpid(child, 0)[1] == 0
    ours = [new_id() for _ in range(100)]
    assert len(theirs) == 40
    assert not {*theirs} & {*ours}
