"""Approvers and their roles: who may decide about tools, access and settings."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import make_project
from .terminal import Answer, Terminal

pytestmark = [pytest.mark.sandbox, pytest.mark.req("000-190")]

ME = pwd.getpwuid(os.getuid()).pw_name
ELEVATED = (
    *("--set", 'sandbox.filesystem.level="elevated"'),
    *("--set", 'sandbox.filesystem.read=[".", "/etc/hostname"]'),
)
#: A decision of each role; APPROVER is replaced.
DECISIONS = {
    "tools": ("tools", "approve", "shell", "--by", "APPROVER", "--evidence", "e"),
    "settings": ("config", "approve", "--by", "APPROVER", "--why", "w"),
}


def approvers(**roles: list[str]) -> str:
    return "\n[approvers]\n" + "".join(
        f'{name} = {{ user = "{ME}", roles = {json.dumps(held)} }}\n'
        for name, held in roles.items()
    )


@pytest.fixture
def project(tmp_path: Path) -> Terminal:
    """Its shell may be granted `/etc`."""
    made = make_project(tmp_path / "d")
    file = made.folder / "tools/shell/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    tool["scope"] |= {"network": "off", "filesystem": [".", "/etc"]}
    tool["permissions"]["filesystem"] = {"read": [".", "/etc"], "write": ["."]}
    file.write_text(yaml.safe_dump(tool))
    approved = made.actum("tools", "approve", "shell", "--by", "maker", "--evidence", "e")
    assert approved.code == 0, approved.aside
    return made


def with_approvers(project: Terminal, text: str) -> None:
    with (project.folder / "actum.toml").open("a") as file:
        file.write(text)
    answer = project.actum("config", "approve", "--by", "root-of-trust", "--why", "w")
    assert answer.code == 0, answer.aside


def ask(project: Terminal, argument: str = "") -> dict[str, Any]:
    words = ("exec", "shell", *ELEVATED, "--stdin", "-", "--", argument)
    answer: dict[str, Any] = project.actum("--json", *words, stdin=b"cat /etc/hostname").json
    return answer


def request(project: Terminal, argument: str = "") -> str:
    """The id of a request for a call that needs the role access."""
    (violation,) = ask(project, argument)["violations"]
    return str(violation["value"])


def decide(project: Terminal, role: str, by: str) -> Answer:
    if role == "access":
        # Another call each time: a decision is used by the next call that is the same.
        request_id = request(project, os.urandom(4).hex())
        words = ("approvals", "approve", request_id, "--by", by, "--why", "w")
    else:
        words = tuple(by if word == "APPROVER" else word for word in DECISIONS[role])
    return project.actum("--json", *words)


ALL = ("tools", "access", "settings")


@pytest.mark.parametrize("role", ALL)
def test_a_decision_needs_the_role_for_it(project: Terminal, role: str) -> None:
    others = [each for each in ALL if each != role]
    text = approvers(ada=[role], bob=others, eve=["settings"])
    with_approvers(project, text)
    refused = decide(project, role, "bob")
    assert (refused.code, json.loads(refused.text)["error"]["code"]) == (3, "ROLE_MISSING")
    assert decide(project, role, "ada").code == 0  # the control


@pytest.mark.parametrize("role", ALL)
def test_a_decider_who_is_no_approver_is_refused(project: Terminal, role: str) -> None:
    assert decide(project, role, "carol").code == 0  # the control: there are no approvers yet
    with_approvers(project, approvers(ada=list(ALL)))
    refused = decide(project, role, "carol")
    assert (refused.code, json.loads(refused.text)["error"]["code"]) == (3, "APPROVER_UNKNOWN")


@pytest.mark.parametrize("identity", ["user", "key"])
def test_a_name_alone_is_not_enough(project: Terminal, identity: str) -> None:
    keyid = json.loads(project.actum("--json", "keys", "show").text)["keyid"]
    own, other = {"user": (ME, "another-user"), "key": (keyid, "0" * 64)}[identity]
    text = "\n[approvers]\n" + "".join(
        f'{name} = {{ {identity} = "{held}", roles = ["tools", "access", "settings"] }}\n'
        for name, held in (("ada", own), ("bob", other))
    )
    with_approvers(project, text)
    for role in ALL:
        refused = decide(project, role, "bob")
        assert (refused.code, json.loads(refused.text)["error"]["code"]) == (
            3,
            "APPROVER_IDENTITY",
        )
        assert decide(project, role, "ada").code == 0  # the control


def test_an_edit_of_the_file_gives_no_role(project: Terminal) -> None:
    with_approvers(project, approvers(ada=["tools", "settings"], bob=["access"]))
    file = project.folder / "actum.toml"
    file.write_text(file.read_text().replace('["access"]', '["access", "settings", "tools"]'))
    for role in ("settings", "tools"):
        refused = decide(project, role, "bob")
        assert json.loads(refused.text)["error"]["code"] == "ROLE_MISSING"
    answer = project.actum("exec", "shell", "--stdin", "-", stdin=b"true")
    assert (answer.code, "SETTINGS_CHANGED" in answer.aside) == (3, True)
    assert decide(project, "settings", "ada").code == 0
    assert decide(project, "tools", "bob").code == 0  # approved by ada, it counts


def test_one_approver_at_least_has_the_role_settings(project: Terminal) -> None:
    with (project.folder / "actum.toml").open("a") as file:
        file.write(approvers(ada=["tools", "access"]))
    refused = project.actum("--json", "config", "approve", "--by", "ada")
    assert json.loads(refused.text)["error"]["code"] == "SETTINGS_UNFIT"


@pytest.mark.parametrize("listed", [True, False])
def test_list_receipt_verify_and_pin_say_in_which_role(project: Terminal, listed: bool) -> None:
    if listed:
        with_approvers(project, approvers(ada=list(ALL)))
    request_id = request(project)
    listing = project.actum("approvals", "list")
    assert ("no [approvers]" in listing.aside) is not listed
    document = json.loads(project.actum("--json", "approvals", "list").text)
    assert document["any_user_decides"] is not listed
    approved = project.actum("approvals", "approve", request_id, "--by", "ada", "--why", "w")
    assert approved.code == 0, approved.aside
    shown = json.loads(project.actum("--json", "approvals", "show", request_id).text)
    assert shown["decided_role"] == ("access" if listed else "any")
    receipt = ask(project)["receipt_id"]
    (decision,) = predicate(project, receipt)["decisions"]
    assert decision["role"] == ("access" if listed else "any")
    verified = project.actum("--json", "verify", receipt)
    assert verified.code == 0
    said = " ".join(each["detail"] for each in json.loads(verified.text)["findings"])
    assert ("role access" if listed else "no [approvers]") in said
    assert decide(project, "tools", "ada").code == 0
    tool = json.loads(project.actum("--json", "tools", "show", "shell").text)
    assert tool["approval"]["role"] == ("tools" if listed else "any")
    assert project.actum("verify", "--all").code == 0


def predicate(project: Terminal, receipt_id: str) -> dict[str, Any]:
    import base64

    envelope = json.loads((project.folder / f".actum/receipts/{receipt_id}.json").read_text())
    signed: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    return signed


@pytest.mark.parametrize(
    "entry",
    [
        'ada = { roles = ["tools"] }',
        'ada = { user = "a", key = "' + "0" * 64 + '", roles = ["tools"] }',
        'ada = { user = "a", roles = ["everything"] }',
        'ada = { user = "a", roles = [] }',
        'ada = { key = "short", roles = ["tools"] }',
        'ada = "settings"',
    ],
)
def test_an_entry_that_cannot_be_read_is_refused(project: Terminal, entry: str) -> None:
    with (project.folder / "actum.toml").open("a") as file:
        file.write(f"\n[approvers]\n{entry}\n")
    answer = project.actum("config", "approve", "--by", "ada")
    assert answer.code != 0
    assert "approvers.ada" in answer.aside + answer.text


def test_two_entries_for_one_name_are_refused(project: Terminal) -> None:
    """Names are compared without case, so the last of two entries would count alone."""
    text = approvers(Ada=["settings"], ada=["settings", "tools"])
    with (project.folder / "actum.toml").open("a") as file:
        file.write(text)
    answer = project.actum("config", "approve", "--by", "ada")
    assert answer.code != 0
    assert "approvers.ada" in answer.aside + answer.text
