"""The progress of a run: one line on a terminal, plain lines in a pipe, nothing in between."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from actum.doors.cli.run_progress import Counts, fitting

from .screen import screen
from .terminal import Terminal

EXAMPLE = Path(__file__).parents[2] / "examples" / "work"
pytestmark = pytest.mark.sandbox


@pytest.fixture
def small(fresh: Terminal) -> Terminal:
    shutil.copytree(EXAMPLE, fresh.folder, dirs_exist_ok=True)
    return fresh


def _slow(folder: Path, name: str) -> None:
    """An agent whose only call takes long enough to be seen."""
    (folder / "agents/agent-9.yaml").write_text(
        "agent_id: agent-9\nsteps: [{tool: shell, stdin: 'sleep 1; echo x > slow'}]\n"
    )
    (folder / "slow.yaml").write_text(
        "items:\n  - {id: slow, agent_id: agent-9, agent_name: " + name + ", description: x}\n"
    )


def test_a_terminal_gets_one_line_that_is_redrawn_and_gone_at_the_end(small: Terminal) -> None:
    _slow(small.folder, '"Ada \\e]0;title\\a\\n"')
    said = screen(small.folder, "work", "slow.yaml", width=60, both=True)
    after = re.findall(r"\r\x1b\[K([^\r\n]*)", said)
    drawn = [line for line in after if line.startswith(("0/1 done", "1/1 done"))]
    assert any(line.startswith("0/1 done · 1 running") for line in drawn), said
    assert any("slow: TL-010" in line for line in drawn), said
    assert all(len(line) < 60 for line in drawn), drawn
    # The name of the agent moves nothing and sets no title.
    assert "\x1b]" not in said
    assert "\x07" not in said
    # The line is erased before the last ones are printed.
    end = said[said.rindex("\r\x1b[K") :]
    assert "1 of 1 work items committed" in end
    assert " running" not in end


def test_a_pipe_gets_plain_lines(small: Terminal) -> None:
    _slow(small.folder, "Ada")
    told = small.actum("work", "slow.yaml")
    assert told.code == 0, told
    lines = told.aside.splitlines()
    assert lines[0] == "level 0: slow"
    assert re.fullmatch(r"  slow: TL-010 SUCCEEDED after \d+ ms", lines[1])
    assert lines[2].startswith("✅ slow success · 1 file(s) ·")
    assert "\r" not in told.aside
    assert "\x1b" not in told.aside


def test_the_line_says_how_far_how_fast_and_how_long_still() -> None:
    counts = Counts(total=40, done=10, failed=1, running=4, elapsed_s=5.5, ended_here=11)
    assert counts.text() == "10/40 done · 1 failed · 4 running · 2.0/s · 14 s left"
    assert Counts(total=3, running=1, now="a: TL-010").text() == "0/3 done · 1 running · a: TL-010"
    hours = Counts(total=10_000, done=2, running=1, elapsed_s=2.0, ended_here=2)
    assert hours.text().endswith("1.0/s · 2 h 46 min left")


def test_no_line_is_wider_than_the_terminal() -> None:
    assert fitting("abcdef", 4) == "abcd"
    assert fitting("日本語", 5) == "日本"


def test_watch_prints_a_document_per_line_for_programs(small: Terminal) -> None:
    run_id = small.json("work", "work.yaml").json["run_id"]
    told = small.actum("runs", "watch", "--json", run_id)
    events = [json.loads(line) for line in told.text.splitlines()]
    assert told.code == 1
    assert [event["at"] for event in events] == ["step", "step", "step", "run", "end"]
    ends = {event["item"]: event["status"] for event in events if event["at"] == "step"}
    assert ends == {"everything": "denied", "greeting": "success", "readme": "success"}
    assert (events[-1]["runId"], events[-1]["status"]) == (run_id, "failed")
    plain = small.actum("runs", "watch", run_id).text.splitlines()
    assert plain[:4] == [
        "item everything denied",
        "item greeting success",
        "item readme success",
        "run failed",
    ]
