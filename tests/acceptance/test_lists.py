"""Lists: receipts and what happened lately, by options, on a terminal and in a pipe; ids by their
first characters."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import make_project
from .screen import screen
from .terminal import Answer, Terminal

pytestmark = pytest.mark.sandbox

_ESCAPE = "\x1b"
_SGR = re.compile(r"\x1b\[\d+m")


def run_item(project: Terminal) -> dict[str, Any]:
    """A work item with one call, which writes a file."""
    (project.folder / "agents").mkdir()
    agent = {"agent_id": "agent-1", "steps": [{"tool": "shell", "stdin": "echo y > by-item"}]}
    (project.folder / "agents/agent-1.yaml").write_text(yaml.safe_dump(agent))
    item = {"id": "job", "agent_id": "agent-1", "description": "x", "dependencies": []}
    (project.folder / "item.yaml").write_text(yaml.safe_dump(item))
    done = project.json("item", "run", "item.yaml")
    assert done.code == 0, done.aside
    found: dict[str, Any] = done.json
    return found


class House:
    """A project in which a little of everything has happened."""

    def __init__(self, folder: Path) -> None:
        self.project = make_project(folder)
        self.good = self._shell("true", "--as", "user:ada")
        self.bad = self._shell("exit 3", "--as", "user:bob")
        self.refused = self.project.json("exec", "shell", "--stdin", "-", "--cwd", "/etc").json
        for name in ("same-1", "same-2"):
            self._shell("true", "--set", f'execution_id="{name}"')
        self.changed = self._shell("echo x > made")
        held = self._shell("mkdir -p rules; echo x > rules/new")
        self.request: str = held["workspace"]["request_id"]
        self.item = run_item(self.project)
        for words in (
            ("block", "git", "--by", "ada", "--evidence", "x"),
            ("unblock", "git", "--why", "y"),
        ):
            assert self.project.actum("tools", *words).code == 0
        assert self.project.actum("keys", "rotate").code == 0

    def _shell(self, script: str, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = self.project.shell(script, *words).json
        return found

    def listed(self, *words: str) -> list[dict[str, Any]]:
        answer = self.project.json("receipts", "list", *words)
        assert answer.code == 0, answer.aside
        found: list[dict[str, Any]] = answer.json["receipts"]
        return found


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(tmp_path_factory.mktemp("lists") / "d")


def test_receipts_of_executions_and_work_items_are_one_list(house: House):
    found = house.listed("--limit", "100")
    assert [each["finished"] for each in found] == sorted(
        (each["finished"] for each in found), reverse=True
    )
    kinds = {each["receipt_id"]: each["kind"] for each in found}
    assert kinds[house.item["receipt_id"]] == "work item"
    assert kinds[house.good["receipt_id"]] == "execution"
    assert len(house.listed("--limit", "2")) == 2


def test_each_option_of_the_list_chooses(house: House):
    everything = house.listed("--limit", "100")

    def ids(*words: str) -> set[str]:
        return {each["receipt_id"] for each in house.listed("--limit", "100", *words)}

    every = {each["receipt_id"] for each in everything}
    good, bad, item = (each["receipt_id"] for each in (house.good, house.bad, house.item))
    assert ids("--by", "ada") == {good}
    assert ids("--by", "user:bob") == {bad}
    assert ids("--by", "agent-1") == {item}
    assert ids("--outcome", "tool_error") == {bad}
    assert ids("--outcome", "TOOL_ERROR", "--outcome", "success") == {bad, item}
    assert ids("--tool", "git") == set()
    assert ids("--tool", "shell") == ids("--tool", "TL-010") == every - {item}
    assert ids("--since", "1h") == every
    assert ids("--since", "0s") == set()
    assert ids("--until", "1h") == set()
    assert ids("--until", "2199-01-01") == every
    boundary = next(each["finished"] for each in everything if each["receipt_id"] == bad)
    assert bad in ids("--since", boundary)
    assert ids("--until", boundary) == {good}
    assert ids("--work") == {item}
    parts = ids("--work", house.item["receipt_id"])
    assert parts == ids("--work", "job")
    assert item in parts
    assert all(
        each["receipt_id"] == item or each["parent_receipt"] == item
        for each in house.listed("--work", "job")
    )
    assert len(parts) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--since", "yesterday"),
        ("--until", "5"),
        ("--outcome", "GREAT"),
        ("--limit", "0"),
        ("--since", "2026-13-01"),
    ],
    ids=" ".join,
)
def test_an_option_that_cannot_be_read_is_a_usage_error(house: House, words: tuple[str, str]):
    answer = house.project.actum("receipts", "list", *words)
    assert answer.code == 2
    assert words[0] in answer.aside


def test_an_empty_list_says_so(house: House):
    answer = house.project.actum("receipts", "list", "--by", "nobody")
    assert (answer.code, "no receipt fits these options" in answer.aside) == (0, True)


def test_the_log_has_everything_in_the_order_of_time(house: House):
    found = house.project.json("log", "-n", "1000").json["log"]
    assert [each["time"] for each in found] == sorted(each["time"] for each in found)
    kinds = {each["kind"] for each in found}
    assert {"execution", "work item", "approval", "tool", "settings", "key"} <= kinds
    by_id = {each["id"]: each for each in found if each["id"]}
    bad = by_id[house.bad["execution_id"]]
    assert (bad["outcome"], bad["about"], bad["by"]) == ("TOOL_ERROR", "TL-010", "user:bob")
    assert bad["duration_ms"] >= 0
    assert by_id[house.item["receipt_id"]]["outcome"] == "success"
    assert by_id[house.request]["kind"] == "approval"
    actions = [each["outcome"] for each in found if each["kind"] == "tool"]
    assert actions[-2:] == ["block", "unblock"]
    assert len(house.project.json("log", "-n", "3").json["log"]) == 3
    assert house.project.json("log", "-n", "3").json["log"] == found[-3:]
    assert house.project.json("log", "--since", "0s").json["log"] == []
    assert house.project.json("log", "--since", "1h").json["log"] == found
    lines = house.project.actum("log", "-n", "1000").text.splitlines()
    assert len(lines) == len(found) + 1
    assert _ESCAPE not in "".join(lines)


def test_denials_are_counted_in_the_log(house: House):
    words = ("--set", "sandbox.processes.allow_fork=false")
    ran = house.project.shell("/bin/true; /bin/true", *words).json
    assert ran["denials"]
    count = sum(each["count"] for each in ran["denials"])
    (entry,) = house.project.json("log", "-n", "1").json["log"]
    assert (entry["id"], entry["denials"]) == (ran["execution_id"], count)


def test_the_log_follows(house: House):
    following = house.project.start("log", "-n", "1", "--follow")
    assert following.stdout is not None
    try:
        following.stdout.readline()
        following.stdout.readline()
        ran = house.project.shell("true").json
        line = following.stdout.readline().decode()
        assert ran["execution_id"] in line
    finally:
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=60)
    assert following.returncode == 130
    both = house.project.actum("log", "--follow", "--json")
    assert both.code == 2


_TABLES = (
    ("receipts", "list"),
    ("log",),
    ("tools", "list"),
    ("tools", "history"),
    ("approvals", "list"),
    ("diff",),
    ("adapters", "list"),
)


@pytest.mark.parametrize("words", _TABLES, ids=" ".join)
def test_a_table_is_plain_in_a_pipe_and_fits_a_terminal(house: House, words: tuple[str, ...]):
    piped = house.project.actum(*words).text
    assert _ESCAPE not in piped
    shown = screen(house.project.folder, *words, width=110)
    assert f"{_ESCAPE}[1m" in shown
    plain = _SGR.sub("", shown)
    assert _ESCAPE not in plain
    assert len(plain.splitlines()) == len(piped.splitlines())
    assert max(map(len, plain.splitlines())) <= 110
    assert plain.split()[0] == piped.split()[0]


def test_colour_follows_the_outcome_and_can_be_switched_off(house: House):
    folder = house.project.folder
    shown = screen(folder, "receipts", "list", "--limit", "100")
    assert f"{_ESCAPE}[32mSUCCEEDED{_ESCAPE}[0m" in shown
    assert f"{_ESCAPE}[31mTOOL_ERROR{_ESCAPE}[0m" in shown
    without = screen(folder, "receipts", "list", "--limit", "100", NO_COLOR="1")
    assert without == _SGR.sub("", shown)
    dumb = screen(folder, "receipts", "list", "--limit", "100", TERM="dumb")
    assert dumb == house.project.actum("receipts", "list", "--limit", "100").text
    assert house.good["receipt_id"] in dumb
    assert house.good["receipt_id"] not in without
    assert house.good["receipt_id"][:8] in without


def _command(house: House, words: tuple[str, ...], given: str) -> Answer:
    return house.project.actum(*(given if word == "ID" else word for word in words))


#: What takes an id, and which one; the field of the JSON document that has to be the same.
_TAKES = (
    (("receipts", "show", "ID", "--json"), "good", "receipt_id"),
    (("receipts", "show", "ID", "--json"), "good", "execution_id"),
    (("receipts", "show", "ID", "--json"), "item", "receipt_id"),
    (("evidence", "show", "ID", "--json"), "good", "execution_id"),
    (("evidence", "show", "ID", "--json"), "good", "receipt_id"),
    (("evidence", "show", "ID", "--json"), "good", "evidence_ref"),
    (("trace", "ID", "--json"), "good", "execution_id"),
    (("trace", "ID", "--json"), "good", "receipt_id"),
    (("trace", "ID", "--json"), "good", "trace_id"),
    (("verify", "ID", "--json"), "good", "receipt_id"),
    (("verify", "ID", "--json"), "item", "receipt_id"),
    (("diff", "ID", "--json"), "changed", "execution_id"),
    (("audit", "prove", "ID", "--json"), "good", "execution_id"),
    (("receipts", "list", "--work", "ID", "--json"), "item", "receipt_id"),
)


@pytest.mark.parametrize(("words", "of", "name"), _TAKES, ids=str)
def test_the_first_characters_of_an_id_are_enough(
    house: House, words: tuple[str, ...], of: str, name: str
):
    full = getattr(house, of)[name]
    start = "evidence:" if full.startswith("evidence:") else ""
    whole = _command(house, words, full)
    assert whole.code == 0, whole.aside
    # Twelve: letters in it, so that it is no number of a record.
    short = _command(house, words, full[: len(start) + 12])
    assert (short.code, short.stdout) == (0, whole.stdout), short.aside


def test_three_characters_are_too_few(house: House):
    answer = house.project.actum("receipts", "show", house.good["receipt_id"][:3])
    assert answer.code == 3


def test_an_ambiguous_beginning_is_a_usage_error_that_lists_the_ids(house: House):
    answer = house.project.actum("trace", "same")
    assert answer.code == 2
    assert "execution same-1" in answer.aside
    assert "execution same-2" in answer.aside
    assert answer.stdout == b""
    document = house.project.json("trace", "same")
    assert document.code == 2
    assert document.json["error"]["code"] == "USAGE"
    assert "same-1" in document.json["error"]["message"]
    assert house.project.actum("trace", "same-1").code == 0


def test_a_whole_id_wins_over_the_beginning_of_others(house: House):
    house.project.shell("true", "--set", 'execution_id="whole"')
    house.project.shell("true", "--set", 'execution_id="whole-again"')
    events = house.project.json("trace", "whole").json["events"]
    assert {event["execution_id"] for event in events} == {"whole"}


def test_a_decision_by_the_beginning_of_an_id_names_all_of_it(house: House):
    shown = house.project.actum("approvals", "show", house.request[:8])
    assert house.request in shown.text
    decided = house.project.actum(
        "approvals", "approve", house.request[:8], "--by", "boss", "--why", "test"
    )
    assert decided.code == 0, decided.aside
    assert house.request in decided.text
    found = house.project.json("log", "-n", "5").json["log"]
    seen = [(each["outcome"], each["by"]) for each in found if each["id"] == house.request]
    assert seen == [("approved", "boss")]


def test_undo_and_replay_take_the_beginning_of_an_id(fresh: Terminal):
    made = fresh.shell("echo x > made").json
    again = fresh.actum(
        "replay", made["execution_id"][:12], "shell", "--stdin", "-", stdin=b"echo x > made"
    )
    assert again.code == 0, again.aside
    (fresh.folder / "kept").write_text("")
    second = fresh.shell("echo y > other").json
    undone = fresh.actum("undo", second["execution_id"][:12])
    assert undone.code == 0, undone.aside
    assert second["execution_id"] in undone.text
    assert not (fresh.folder / "other").exists()


def test_ids_of_work_items_by_their_beginning(fresh: Terminal, tmp_path: Path):
    receipt = run_item(fresh)["receipt_id"]
    folder = tmp_path / "restored"
    restored = fresh.actum("item", "restore", receipt[:12], str(folder))
    assert restored.code == 0, restored.aside
    assert not (folder / "by-item").exists()
    statement = fresh.json("receipts", "show", receipt).json["statement"]
    by_run = fresh.json("receipts", "show", statement["predicate"]["run_id"][:12]).json
    assert by_run["receipt_id"] == receipt
    assert fresh.actum("undo", receipt[:12]).code == 0
    assert not (fresh.folder / "by-item").exists()


def test_a_running_execution_is_in_the_log(fresh: Terminal):
    started = fresh.start("exec", "shell", "--stdin", "-")
    assert started.stdin is not None
    started.stdin.write(b"sleep 30")
    started.stdin.close()
    started.stdin = None
    deadline = time.monotonic() + 30
    try:
        while True:
            found = fresh.json("log").json["log"]
            states = [each["outcome"] for each in found if each["kind"] == "execution"]
            if states == ["running"]:
                break
            assert time.monotonic() < deadline, found
    finally:
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=60)


def test_records_are_an_outline_on_a_terminal_and_json_in_a_pipe(house: House):
    folder, receipt = house.project.folder, house.bad["receipt_id"]
    for words in (("receipts", "show", receipt), ("evidence", "show", receipt)):
        piped = house.project.actum(*words)
        assert json.loads(piped.stdout)
        shown = screen(folder, *words)
        assert f"{_ESCAPE}[31mTOOL_ERROR{_ESCAPE}[0m" in shown
        plain = _SGR.sub("", shown)
        assert "execution_id: " + house.bad["execution_id"] in plain
        assert _ESCAPE not in plain
        assert "{" not in plain
    trace = _SGR.sub("", screen(folder, "trace", receipt))
    assert trace == house.project.actum("trace", receipt).text
    assert "tool_run_start" in trace


def test_no_value_of_a_record_steers_a_terminal_or_looks_like_a_field(house: House):
    evil = "\x1b[2J\x9b31m\u202e\nexecution_id: forged\r\x07"
    ran = house.project.shell(f"printf '%s' '{evil}'", "--purpose", evil).json
    shown = screen(house.project.folder, "evidence", "show", ran["receipt_id"])
    plain = _SGR.sub("", shown)
    assert [each for each in plain if not each.isprintable() and each != "\n"] == []
    assert not any(line.strip().startswith("execution_id: forged") for line in plain.splitlines())
    assert "forged" in plain
