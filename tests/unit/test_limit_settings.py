"""The numbers of actum.toml: read strictly, and really the ones in force."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actum import ContractInvalid, Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.runners.local import LocalRunner
from actum.settings import Settings, load


def read(folder: Path, toml: str = "") -> Settings:
    create(folder, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    with (folder / "actum.toml").open("a") as file:
        file.write(toml)
    return load(folder / ".actum", {"LOGNAME": "me", "HOME": "/nonexistent"})


def test_without_any_the_defaults_are_in_force(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings.max_concurrent == 2 * (os.cpu_count() or 1)
    assert (settings.max_queued, settings.max_wait_s, settings.max_sessions) == (4_000, 600, 32)
    assert (settings.egress_connections, settings.egress_at_once) == (10_000, 2_000)
    assert settings.egress_mb == 8_192


def test_what_is_set_is_in_force(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "[limits]\nmax_concurrent = 3\nmax_queued = 0\nmax_wait_s = 7\nmax_sessions = 2\n"
        "[egress]\nmax_connections = 5\nmax_at_once = 4\nmax_mb = 1\n",
    )
    with Runtime(settings, pool=False) as runtime:
        assert (runtime.services.concurrency.count, runtime.services.concurrency.queued) == (3, 0)
        assert runtime.services.wait_s == 7
        runner = runtime.services.runners[RunnerKind.LOCAL]
        assert isinstance(runner, LocalRunner)
        assert runner._kept.count == 2
        bounds = runner._attempts._open_relay().bounds
        assert (bounds.connections, bounds.at_once, bounds.bytes) == (5, 4, 1 << 20)


@pytest.mark.parametrize(
    ("toml", "field", "permitted"),
    [
        ("[limits]\nmax_concurrent = 0\n", "limits.max_concurrent", "integer 1..1000"),
        ("[limits]\nmax_queued = -1\n", "limits.max_queued", "integer 0..100000"),
        ("[limits]\nmax_wait_s = 1.5\n", "limits.max_wait_s", "integer 0..86400"),
        ("[limits]\nmax_sessions = true\n", "limits.max_sessions", "integer 0..1000"),
        ('[egress]\nmax_mb = "8"\n', "egress.max_mb", "integer 1..1048576"),
    ],
)
def test_what_is_no_such_number_is_a_problem_with_its_range(
    tmp_path: Path, toml: str, field: str, permitted: str
) -> None:
    with pytest.raises(ContractInvalid) as caught:
        read(tmp_path, toml)
    assert [(each.field, each.permitted) for each in caught.value.problems] == [(field, permitted)]
