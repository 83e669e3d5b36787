"""A home that is in use: what executions do meanwhile is no finding."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create

from .attacker import verify

pytestmark = pytest.mark.sandbox

_EXECUTIONS = 15


@contextmanager
def executions(root: Path) -> Iterator[tuple[list[str], threading.Thread]]:
    """Tools that write, one after the other, in runtimes that remove what is kept too long."""
    over = threading.Event()
    done: list[str] = []

    def work() -> None:
        while not over.is_set():
            with Runtime.open(root) as rt:
                for _ in range(3):
                    result = rt.exec("shell", stdin="date +%N > now; echo $$ > $$", cwd=root)
                    assert result.workspace is not None
                    done.append(result.workspace.state)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done, thread
    finally:
        over.set()
        thread.join()


def test_a_home_in_use_verifies_and_a_change_in_it_is_found(tmp_path: Path) -> None:
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-18")
    settings = root / "actum.toml"
    settings.write_text(settings.read_text() + "\n[workspace]\nkeep = 2\n")
    home = root / ".actum"
    with Runtime.open(root) as rt:
        held = rt.exec("shell", stdin="echo x > wished", cwd=root, changes="hold")
    record = home / "transactions" / f"{held.execution_id}-1" / "record.json"
    honest = record.read_bytes()
    with executions(root) as (done, thread):
        while len(done) < _EXECUTIONS and thread.is_alive():
            assert verify(home) == (0, [])
        record.write_bytes(honest.replace(b"wished", b"warped"))
        verdict = verify(home)
        record.write_bytes(honest)
    assert [each["subject"] for each in verdict.broken] == [f"file {record.relative_to(home)}"]
    assert len(done) >= _EXECUTIONS
    assert set(done) == {"committed"}
