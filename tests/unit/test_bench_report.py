"""What `make bench` draws and writes is made of its figures, and of nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    import pytest

BENCH = Path(__file__).parents[2] / "bench"


def module(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def row(p50: float) -> dict[str, object]:
    return {"p50_ms": p50, "p95_ms": 2 * p50, "done_per_second": 20, "failed": {}}


RESULTS = {
    "commit": "abc",
    "execution": {
        "true": {"ratios": {"actum": 2.75, "bwrap": 6.1}},
        "python": {"ratios": {"actum": 0.125}},
        "program": {"ratios": {"actum": 0.375}},
        "command": {"ratios": {"actum exec": 9.5}},
        "throughput": {"ratio": 0.2, "per_second": {"bare": {"1": 9.0}, "actum": {"1": 3.0}}},
        "load": {"actum": {"20": row(5), "100": row(7)}},
        "costs": {"guards": {"over_a_fork_ms": {"seccomp": 0.1}}, "steps": {"steps_ms": {"a": 1}}},
        "memory": {"per_sandbox_kib": 10, "per_interpreter_kib": 20},
        "preload_numpy": {"left_out": "no numpy & no <room>"},
        "stdout_1_gib": {"host_memory_growth_mib": 1.5},
        "peers_left_out": {"docker": "its daemon | does not answer"},
    },
}


def test_every_picture_is_well_formed_and_shows_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plots = module("plots")
    monkeypatch.setattr(plots, "PICTURES", tmp_path)
    names = plots.draw(RESULTS)
    assert names == ["costs", "load", "python", "throughput", "true"]
    for name in names:
        root = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        assert root.tag.endswith("svg")
    assert "2.75×" in (tmp_path / "true.svg").read_text()
    assert "seccomp 0.10" in (tmp_path / "costs.svg").read_text()


def test_the_table_holds_what_was_measured_and_why_a_peer_is_missing() -> None:
    text = module("report").table(RESULTS)
    assert "| governed `/bin/true` ÷ bare, p50 | ≤ 3.0 | ≤ 1.8 | 2.75 |" in text
    assert "| actum, 100 | 7 | 14 | 20 |" in text
    assert "| docker | could not be measured here | its daemon / does not answer |" in text


def test_the_page_is_written_between_its_marks_and_twice_is_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = module("report")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nafter\n")
    monkeypatch.setattr(report, "PAGE", page)
    report.write(RESULTS)
    first = page.read_text()
    report.write(RESULTS)
    assert page.read_text() == first
    assert first.startswith("before\n")
    assert first.endswith("<!-- measured: end -->\nafter\n")
    assert "old" not in first
