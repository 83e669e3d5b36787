"""Standing approvals on the command line, with tools that really write and connect."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum.contract.os_user import os_user

from .conftest import make_project
from .terminal import Answer, Terminal

pytestmark = pytest.mark.sandbox

ME = os_user().name


@pytest.fixture
def out(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "out"
    made.mkdir()
    return made


@pytest.fixture
def project(tmp_path: Path, out: Path) -> Terminal:
    """Its shell may be granted `out`."""
    made = make_project(tmp_path / "d")
    file = made.folder / "tools/shell/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    tool["scope"] |= {"network": "off", "filesystem": [".", str(out)]}
    tool["permissions"]["filesystem"] = {"read": [".", str(out)], "write": [".", str(out)]}
    file.write_text(yaml.safe_dump(tool))
    approve(made)
    return made


def approve(project: Terminal) -> None:
    answer = project.actum("tools", "approve", "shell", "--by", "maker", "--evidence", "e")
    assert answer.code == 0, answer.aside


def grant(project: Terminal, out: Path, *words: str, by: str = "alice") -> Answer:
    words = words or ("--uses", "2")
    what = ("approvals", "grant", "shell", "--path", str(out), *words, "--by", by, "--why", "w")
    return project.actum("--json", *what)


def write(project: Terminal, out: Path, script: str) -> Answer:
    fields = ('level="elevated"', 'read=["."]', f"write={json.dumps([str(out)])}")
    words = [word for field in fields for word in ("--set", f"sandbox.filesystem.{field}")]
    return project.actum("--json", "exec", "shell", "--stdin", "-", *words, stdin=script.encode())


def listed(project: Terminal, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.actum("--json", "approvals", "list", *words).json[
        "standing"
    ]
    return found


def test_it_lets_a_tool_write_as_often_as_it_says(project: Terminal, out: Path) -> None:
    asked = write(project, out, f"echo 0 > {out}/0")
    assert (asked.code, asked.json["reason_codes"]) == (3, ["APPROVAL_REQUIRED"])
    suggested = f"actum approvals grant TL-010 --path {out} --uses N"
    assert suggested in asked.json["violations"][0]["message"]
    granted = grant(project, out, "--uses", "2", "--until", "30d")
    assert granted.code == 0, granted.aside
    name = granted.json["approval_id"]
    for number in (1, 2):
        done = write(project, out, f"echo {number} > {out}/{number}")
        assert done.code == 0, done.aside
        assert project.actum("verify", done.json["receipt_id"]).code == 0
    assert sorted(os.listdir(out)) == ["1", "2"]
    refused = write(project, out, f"echo 3 > {out}/3")
    assert "its 2 uses are used up" in refused.json["violations"][0]["message"]
    assert listed(project) == []
    (ended,) = listed(project, "--all")
    assert (ended["approval_id"], ended["uses_left"], ended["state"]) == (name, 0, "ended")
    shown = project.actum("approvals", "show", name)
    assert "ended: its 2 uses are used up" in shown.text
    assert project.actum("verify", "--all").code == 0


def test_it_is_listed_shown_and_revoked(project: Terminal, out: Path) -> None:
    name = grant(project, out, "--until", "2099-12-31").json["approval_id"]
    table = project.actum("approvals", "list").text
    assert "active" in table
    assert f"alice (user {ME})" in table
    assert "2100-01-01T00:00:00.000Z" in table  # the end of that day
    assert f"write {out}" in table
    assert write(project, out, f"touch {out}/a").code == 0
    (one,) = listed(project)
    assert (one["used"], one["uses_left"], one["granted"]["by"]) == (1, None, "alice")
    assert one["granted"]["user"]["uid"] == os.getuid()
    revoked = project.actum("approvals", "revoke", name, "--by", "bob", "--why", "moved")
    assert (revoked.code, revoked.text) == (0, f"{name} revoked by bob; it was used once.\n")
    assert project.actum("approvals", "revoke", name, "--by", "bob", "--why", "w").code == 3
    refused = write(project, out, f"touch {out}/b")
    assert "bob revoked it at" in refused.json["violations"][0]["message"]
    assert os.listdir(out) == ["a"]


def test_the_tool_that_changed_is_not_served(project: Terminal, out: Path) -> None:
    assert grant(project, out).code == 0
    assert write(project, out, f"touch {out}/a").code == 0
    with (project.folder / "tools/shell/README.md").open("a") as file:
        file.write("\nmore\n")
    approve(project)
    refused = write(project, out, f"touch {out}/b")
    assert "the tool's folder has changed since" in refused.json["violations"][0]["message"]
    assert os.listdir(out) == ["a"]


def test_only_an_approver_with_the_role_access_grants_and_revokes(
    project: Terminal, out: Path
) -> None:
    with (project.folder / "actum.toml").open("a") as file:
        for_all = f'user = "{ME}", roles'
        file.write(
            f'\n[approvers]\nada = {{ {for_all} = ["access"] }}\n'
            f'eve = {{ {for_all} = ["settings"] }}\n'
        )
    assert project.actum("config", "approve", "--by", "eve", "--why", "w").code == 0
    for by, code in (("eve", "ROLE_MISSING"), ("mallory", "APPROVER_UNKNOWN")):
        refused = grant(project, out, by=by)
        assert (refused.code, code in refused.aside + refused.text) == (3, True)
    granted = grant(project, out, by="ada")
    assert granted.json["granted"]["role"] == "access"
    words = ("approvals", "revoke", granted.json["approval_id"], "--why", "w")
    assert project.actum(*words, "--by", "eve").code == 3
    assert project.actum(*words, "--by", "ada").code == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--uses", "many"), 2, "--uses"),
        (("--until", "soon"), 2, "'soon' is neither an age"),
        (("--until", "9999-12-31"), 2, "beyond the calendar"),
        (("--until", "2020-01-01"), 3, "a time in the future"),
        (("--uses", "0"), 3, "--uses"),
        (("--uses", "1", "--host", "db.corp"), 3, "not among the hosts approved for shell"),
        (("--uses", "1", "--path", "/srv"), 3, "not approved to write /srv"),
    ],
)
def test_what_cannot_be_granted_is_refused_by_its_option(
    project: Terminal, out: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    refused = grant(project, out, *words)
    assert refused.code == code
    assert said in refused.aside + refused.text
    assert listed(project, "--all") == []
