"""What `make bench` draws and writes is made of its figures, and of nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

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


def ratios(bare: float, against: float) -> dict[str, object]:
    return {"ratios": {"bare": bare, "against": against}}


QUIET = {"requests_that_differ": {"processors_used_by_others": 0.05}}
RESULTS: dict[str, Any] = {
    "commit": "abc",
    "kernel": "6.1",
    "processors": 2,
    "load_before": 0.3,
    "uncommitted": [],
    "parts": QUIET,
    "requests_that_differ": {
        "against": "f00",
        "labels": {"script": "shell, a new script", "snippet": "a new snippet"},
        "kinds": {
            "script": {"differ": ratios(2.5, 1.05), "repeated": ratios(2.25, 1.2)},
            "snippet": {"differ": ratios(0.25, 1.25), "repeated": ratios(0.2, 1.3)},
        },
    },
    "caches": {
        "requests_of_each_kind": 25,
        "labels": {"mcp": "an MCP server, a new note"},
        "caches": {
            "decisions": {
                "differ": {"script": [24, 25], "arguments": [0, 25]},
                "repeated": {"script": [24, 25], "arguments": [24, 25]},
            },
            "access tokens": {},
        },
    },
    "execution": {
        "true": {"ratios": {"actum": 2.75, "actum, repeated": 2.5, "bwrap": 6.1}},
        "python": {"ratios": {"actum": 0.125}},
        "command": {"ratios": {"actum": 9.5, "actum, repeated": 9.25}},
        "throughput": {
            "ratios": {"actum": 0.15, "actum, repeated": 0.2},
            "per_second": {"bare": {"1": 9.0}, "actum": {"1": 3.0}},
        },
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
    assert names == ["costs", "load", "python", "requests", "throughput", "true"]
    for name in names:
        root = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        assert root.tag.endswith("svg")
    assert "2.75×" in (tmp_path / "true.svg").read_text()
    assert "seccomp 0.10" in (tmp_path / "costs.svg").read_text()


def test_the_table_holds_what_was_measured_and_why_a_peer_is_missing() -> None:
    text = module("report").table(RESULTS)
    assert "| request | aim ÷ bare | ÷ bare | repeated ÷ bare | bar ÷ f00 | ÷ f00 |" in text
    assert "| shell, a new script | ≤ 2.0 | 2.5 | 2.25 | ≤ 1.15 | 1.05 | 1.2 |" in text
    assert "| a new snippet | ≤ 0.2 | 0.25 | 0.2 | ≤ 1.3 | 1.25 | 1.3 |" in text
    assert "| decisions | 24 of 50 (48 %) | 48 of 50 (96 %) | arguments |" in text
    assert "| access tokens | not used | not used |  |" in text
    assert "| actum, 100 | 7 | 14 | 20 |" in text
    assert "| docker | could not be measured here | its daemon / does not answer |" in text


def test_without_another_version_the_table_has_no_columns_for_it() -> None:
    alone = {**RESULTS["requests_that_differ"], "against": None}
    text = module("report").table({**RESULTS, "requests_that_differ": alone})
    assert "One run of `make bench` at abc" in text
    assert "| shell, a new script | ≤ 2.0 | 2.5 | 2.25 |\n" in text


@pytest.mark.parametrize(
    ("disturbed", "says"),
    [
        ({}, None),
        ({"load_before": 0.9}, "**The machine was busy before it**"),
        ({"parts": {**QUIET, "egress": {"processors_used_by_others": 0.5}}}, "egress (0.5)"),
        ({"uncommitted": ["src/a.py"]}, "**With uncommitted changes** to src/a.py."),
    ],
)
def test_a_run_that_was_disturbed_says_so(disturbed: dict[str, Any], says: str | None) -> None:
    text = module("report").table({**RESULTS, **disturbed})
    assert "**" not in text if says is None else says in text


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
