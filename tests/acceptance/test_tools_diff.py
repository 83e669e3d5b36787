"""`actum tools diff`: what another approval of a tool would mean."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from .conftest import approve, change
from .terminal import Terminal


def _tool(project: Terminal) -> Path:
    assert project.actum("new", "tool", "lines").code == 0
    approve(project, "lines")
    return project.folder / "tools/lines"


def test_a_tool_is_compared_with_its_approval(fresh: Terminal):
    folder = _tool(fresh)
    same = fresh.actum("tools", "diff", "lines")
    assert (same.code, "exactly as approved by tester" in same.text) == (0, True)
    file = folder / "tool.yaml"
    file.write_text(
        file.read_text()
        .replace("network: off", "network: on")
        .replace("hosts: []", "hosts: [example.com]")
        .replace("max_memory_mb: 256", "max_memory_mb: 128")
    )
    (folder / "README.md").unlink()
    (folder / "added.sh").write_text("echo \x1b[31mhello\n")
    (folder / "added.sh").chmod(0o755)
    differs = fresh.json("tools", "diff", "lines")
    assert differs.code == 1
    found = differs.json
    assert found["scope_change"] == "expanded"
    assert {each["path"]: each["change"] for each in found["files"]} == {
        "README.md": "removed",
        "added.sh": "added",
        "tool.yaml": "edited",
    }
    fields = {each["field"]: (each["before"], each["after"]) for each in found["fields"]}
    assert fields["scope.network"] == ("off", "on")
    assert fields["scope.hosts"] == ([], ["example.com"])
    assert fields["permissions.execution.max_memory_mb"] == (256, 128)
    granted = {each["name"]: (each["added"], each["removed"]) for each in found["grants"]}
    assert granted["network"] == (["on"], [])
    assert granted["hosts"] == (["example.com"], [])
    assert granted["max_memory_mb"] == (["128"], ["256"])
    text = fresh.actum("tools", "diff", "TL-100").text
    for line in (
        "  added: added.sh",
        "  tool.yaml scope.network: off -> on",
        "scope: expanded",
        "  hosts: + example.com",
        "  -  network: off",
        "  +  network: on",
    ):
        assert line in text.splitlines()
    assert "\x1b" not in text
    # What is shown is what an approval pins.
    approve(fresh, "lines")
    assert fresh.json("tools", "diff", "lines").json["same"] is True
    change(file, lambda tool: tool["scope"].update(network="on"))
    assert fresh.actum("tools", "diff", "lines").code == 1


def test_less_is_called_reduced_and_a_mode_alone_is_named(fresh: Terminal):
    folder = _tool(fresh)
    file = folder / "tool.yaml"
    text = file.read_text()
    file.write_text(text.replace("max_memory_mb: 256", "max_memory_mb: 64"))
    assert fresh.json("tools", "diff", "lines").json["scope_change"] == "reduced"
    file.write_text(text)
    (folder / "README.md").chmod(0o755)
    found = fresh.json("tools", "diff", "lines").json
    assert [(each["change"], each["diff"]) for each in found["files"]] == [("now executable", [])]
    assert found["scope_change"] == "unchanged"


def test_without_the_approved_content_digests_are_compared(fresh: Terminal):
    folder = _tool(fresh)
    pinned = fresh.folder / ".actum/pinned"
    assert any(pinned.iterdir())
    file = folder / "tool.yaml"
    file.write_text(file.read_text().replace("network: off", "network: on"))
    for stored in pinned.iterdir():
        stored.write_bytes(b"forged")  # content that is not the approved one is not shown as it
    forged = fresh.json("tools", "diff", "lines").json
    shutil.rmtree(pinned)
    found = fresh.json("tools", "diff", "lines").json
    assert found == forged
    (edited,) = found["files"]
    assert edited["change"] == "edited"
    assert "not stored" in edited["diff"][1]
    assert edited["approved_sha256"] in edited["diff"][1]
    assert found["fields"] == []
    # The grants are in the signed lock.
    assert found["scope_change"] == "expanded"


def test_a_broken_or_missing_folder_and_an_unknown_tool(fresh: Terminal):
    folder = _tool(fresh)
    file = folder / "tool.yaml"
    file.write_text("tool_id: [")
    broken = fresh.json("tools", "diff", "lines")
    assert broken.code == 1
    assert broken.json["scope_change"] is None
    assert broken.json["problems"]
    shutil.rmtree(folder)
    gone: dict[str, Any] = fresh.json("tools", "diff", "lines").json
    assert {each["change"] for each in gone["files"]} == {"removed"}
    unknown = fresh.json("tools", "diff", "nothing")
    assert (unknown.code, unknown.json["error"]["code"]) == (3, "TOOL_NOT_APPROVED")
