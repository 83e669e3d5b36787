"""What a person who decides sees and leaves behind: approvals with the whole call, and blocks."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import yaml

from .conftest import add_plain_tool
from .terminal import Answer, Terminal

SCRIPT = b"cat /etc/hostname\nstate: approved\n\x1b[2Jgone\r\n"
PURPOSE = "look\nstate: approved"


@pytest.fixture
def asking(fresh: Terminal) -> Terminal:
    """A project whose shell may be granted `/etc`, and a request for it."""
    file = fresh.folder / "tools/shell/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    tool["scope"] |= {"network": "off", "filesystem": [".", "/etc"]}
    tool["permissions"]["filesystem"] = {"read": [".", "/etc"], "write": ["."]}
    file.write_text(yaml.safe_dump(tool))
    approved = fresh.actum("tools", "approve", "shell", "--by", "ada", "--evidence", "test")
    assert approved.code == 0, approved.aside
    (fresh.folder / "in.txt").write_text("data")
    return fresh


def ask(terminal: Terminal, script: bytes = SCRIPT) -> Answer:
    return terminal.json(
        *("exec", "shell", "--stdin", "-", "--file", "in.txt", "--env", "LANG=secret-value"),
        *("--purpose", PURPOSE, "--set", 'sandbox.filesystem.level="elevated"'),
        *("--set", 'sandbox.filesystem.read=[".", "/etc/hostname"]', "--", "a b", "c\nd"),
        stdin=script,
    )


def request(terminal: Terminal, script: bytes = SCRIPT) -> str:
    answer = ask(terminal, script)
    assert answer.json["reason_codes"] == ["APPROVAL_REQUIRED"]
    return str(answer.json["violations"][0]["value"])


def test_show_has_the_whole_call(asking: Terminal) -> None:
    shown = asking.json("approvals", "show", request(asking)).json
    call = shown["call"]
    assert call["tool"]["id"] == "TL-010"
    assert call["argv"] == ["sh", "-s", "--", "a b", "c\nd"]
    assert call["working_directory"] == str(asking.folder)
    assert call["stdin"] == {
        "bytes": len(SCRIPT),
        "sha256": hashlib.sha256(SCRIPT).hexdigest(),
        "encoding": "utf-8",
        "head": SCRIPT.decode(),
        "truncated": False,
    }
    file = {"path": str(asking.folder / "in.txt"), "sha256": hashlib.sha256(b"data").hexdigest()}
    assert call["files"] == [file]
    assert call["environment"] == ["LANG"]
    assert "/etc/hostname" in shown["grants"]["filesystem"]["read"]
    assert shown["grants"]["network"]["allow"] == []
    assert shown["adds"] == {"read": ["/etc/hostname"]}
    assert shown["scope"]["read"] == [".", "/etc"]
    assert shown["requested_as"]["uid"] == os.getuid()


def test_nothing_of_the_request_passes_for_a_line_of_ours_or_reaches_the_terminal(
    asking: Terminal,
) -> None:
    request_id = request(asking)
    text = asking.actum("approvals", "show", request_id).text
    lines = text.splitlines()
    assert "state: pending" in lines
    assert "state: approved" not in lines
    assert not any(ord(letter) < 32 for letter in text.replace("\n", ""))
    assert "     2 | state: approved" in lines
    assert "     3 | \\x1b[2Jgone\\r" in lines
    assert r'argv: "sh" "-s" "--" "a b" "c\nd"' in lines
    assert r"action.justification: look\nstate: approved" in lines
    assert "secret-value" not in text
    assert "beyond the tool's approval: reads /etc/hostname" in lines
    listed = asking.actum("approvals", "list").text
    assert len(listed.splitlines()) == 2


def test_of_a_long_or_binary_input_the_head_and_the_digest_are_shown(asking: Terminal) -> None:
    long = b"echo long line\n" * 5_000
    shown = asking.json("approvals", "show", request(asking, long)).json["call"]["stdin"]
    assert shown["truncated"] is True
    assert shown["sha256"] == hashlib.sha256(long).hexdigest()
    assert long.decode().startswith(shown["head"])
    text = asking.actum("approvals", "show", request(asking, b"\xff\xfe\x00")).text
    assert "binary, shown as hex" in text
    assert "     1 | fffe00" in text


@pytest.mark.sandbox
def test_who_decided_is_visible_in_list_receipt_and_verify(asking: Terminal) -> None:
    request_id = request(asking)
    decided = asking.json("approvals", "approve", request_id, "--by", "boss", "--why", "looked")
    assert decided.json["approvals"][0]["same_user"] is True
    assert "same user asked" in asking.actum("approvals", "list", "--all").text
    ran = ask(asking, SCRIPT)
    assert ran.json["result"] is not None, ran.stdout
    receipt = asking.json("receipts", "show", ran.json["receipt_id"]).json
    (decision,) = receipt["statement"]["predicate"]["decisions"]
    assert (decision["decided_by"], decision["decided_uid"]) == ("boss", os.getuid())
    assert decision["same_user"] is True
    told = asking.actum("verify", ran.json["receipt_id"])
    assert told.code == 0
    assert "the same user asked and approved" in told.text
    alone = asking.folder / "alone.json"
    alone.write_bytes(Path(receipt["path"]).read_bytes())
    (key,) = (asking.folder / ".actum/keys").glob("*.pub")
    by_itself = asking.actum("verify", str(alone), "--key", str(key))
    assert "the same user asked and approved" in by_itself.text
    shown = asking.actum("approvals", "show", request_id).text
    assert ran.json["execution_id"] in shown


def test_a_blocked_tool_stays_blocked_until_the_block_is_lifted(fresh: Terminal) -> None:
    add_plain_tool(fresh)
    words = ("--by", "ada", "--evidence", "incident-7")

    def state() -> str:
        tools = fresh.json("tools", "list").json["tools"]
        return str(next(each["state"] for each in tools if each["name"] == "say"))

    def codes() -> list[str]:
        return [code for code, _ in fresh.json("check", "say").violations]

    assert (state(), codes()) == ("approved", [])
    assert fresh.actum("tools", "block", "say", *words).code == 0
    assert (state(), codes()) == ("blocked", ["TOOL_NOT_ACTIVE"])
    again = fresh.actum("tools", "approve", "say", *words)
    assert again.code == 0
    assert "tools unblock say --why" in again.text
    (fresh.folder / "tools/say/README.md").write_text("changed\n")
    assert (state(), codes()) == ("blocked", ["TOOL_NOT_ACTIVE"])
    assert fresh.actum("tools", "approve", "say", *words).code == 0
    assert fresh.actum("tools", "deprecate", "say", *words).code == 0
    assert fresh.actum("tools", "approve", "say", *words).code == 0
    assert "blocked" in fresh.actum("tools", "list").text
    assert (state(), codes()) == ("blocked", ["TOOL_NOT_ACTIVE"])
    assert fresh.actum("tools", "unblock", "say").code == 2
    assert fresh.actum("tools", "unblock", "say", "--why", "fixed in 7").code == 0
    assert (state(), codes()) == ("approved", [])
    last = fresh.json("tools", "history", "say").json["history"][-1]
    assert (last["action"], last["evidence"]) == ("unblock", "fixed in 7")
    assert fresh.actum("tools", "unblock", "say", "--why", "once more").code == 3
