"""`actum images` as people type it, and a tool that runs in an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.images import Layer, docker_save, host_programs

from .conftest import approve
from .terminal import Terminal

pytestmark = pytest.mark.sandbox


def _archive(folder: Path, text: bytes = b"of the image\n") -> Path:
    layer = Layer().file("etc/in-image", text).entry("pipe", b"6").file("su", mode=0o4755)
    for inside, source in host_programs(["sh", "cat"]).items():
        layer.file(inside.lstrip("/"), source.read_bytes(), mode=0o755)
    return docker_save(folder / "saved.tar", [layer.content()], tag="made:1")


def _run_in(project: Terminal, reference: str) -> None:
    """As an author does it: one more line in tool.yaml."""
    with (project.folder / "tools/shell/tool.yaml").open("a") as file:
        file.write(f'image: "{reference}"\n')


def test_from_an_archive_to_a_tool_that_runs_in_it(fresh: Terminal, tmp_path: Path) -> None:
    archive = _archive(tmp_path)
    added = fresh.actum("images", "add", str(archive))
    assert added.code == 0
    reference = added.text.removeprefix("image ").strip()
    assert "Left out 1 devices" in added.aside and "bits of 1" in added.aside
    _run_in(fresh, reference)
    shown = fresh.actum("tools", "diff", "shell")
    assert reference in shown.text  # what an approver sees
    approve(fresh, "shell")
    assert fresh.actum("sh", "cat /etc/in-image").text == "of the image\n"
    assert fresh.actum("verify", "--all").code == 0

    again = fresh.actum("images", "add", str(archive))
    assert again.text == added.text and "already" in again.aside
    (listed,) = fresh.json("images", "list").json["images"]
    assert listed["tools"] == [{"tool_id": "TL-010", "name": "shell", "approved": True}]
    assert listed["names"] == ["made:1"] and listed["left_out"] == 1 and listed["masked"] == 1
    assert reference in fresh.actum("images", "list").text
    assert fresh.json("images", "show", "made:1").json == listed
    assert fresh.actum("images", "show", reference[7:15]).code == 0


def test_an_image_that_a_tool_names_is_kept(fresh: Terminal, tmp_path: Path) -> None:
    reference = fresh.actum("images", "add", str(_archive(tmp_path))).text.split()[-1]
    other = Layer().file("other").content()
    (tmp_path / "other.tar").write_bytes(other)
    unused = fresh.actum("images", "add", str(tmp_path / "other.tar")).text.split()[-1]
    _run_in(fresh, reference)
    approve(fresh, "shell")

    refused = fresh.actum("images", "remove", reference)
    assert refused.code == 3 and "IMAGE_PINNED" in refused.aside and "shell" in refused.aside
    assert "1 images would be removed" in fresh.actum("images", "gc", "--dry-run").text
    collected = fresh.json("images", "gc").json
    assert [each["id"] for each in collected["images"]] == [unused]
    assert fresh.actum("sh", "true").code == 0

    assert fresh.actum("images", "remove", reference, "--force").code == 0
    missing = fresh.actum("sh", "true")
    assert missing.code == 3 and "IMAGE_MISSING" in missing.aside
    assert "actum images add" in missing.aside
    fresh.actum("images", "add", str(tmp_path / "saved.tar"))
    assert fresh.actum("sh", "true").code == 0


@pytest.mark.parametrize("edit", ["broken", "another image", "gone"])
def test_an_image_of_an_approved_tool_is_kept_while_its_folder_is_edited(
    fresh: Terminal, tmp_path: Path, edit: str
) -> None:
    """As in the middle of an edit, or of a checkout of another branch."""
    reference = fresh.actum("images", "add", str(_archive(tmp_path))).text.split()[-1]
    _run_in(fresh, reference)
    approve(fresh, "shell")
    folder = fresh.folder / "tools/shell"
    approved = (folder / "tool.yaml").read_text()
    if edit == "gone":
        folder.rename(tmp_path / "aside")
    elif edit == "broken":
        (folder / "tool.yaml").write_text(approved + ": [\n")
    else:
        (folder / "tool.yaml").write_text(approved.replace(reference, f"sha256:{'0' * 64}"))
    assert fresh.json("images", "gc").json["images"] == []
    refused = fresh.actum("images", "remove", reference)
    assert refused.code == 3 and "IMAGE_PINNED" in refused.aside
    if edit == "gone":
        (tmp_path / "aside").rename(folder)
    (folder / "tool.yaml").write_text(approved)
    assert fresh.actum("sh", "cat /etc/in-image").text == "of the image\n"


def test_refusals_of_the_command(fresh: Terminal, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"no archive" * 200)
    refused = fresh.actum("images", "add", str(tmp_path / "bad"), "--json")
    assert refused.code == 3 and refused.json["error"]["code"] == "IMAGE_INVALID"
    assert fresh.actum("images", "add", str(tmp_path / "none")).code == 2
    unknown = fresh.actum("images", "show", "nothing")
    assert unknown.code == 3 and "IMAGE_UNKNOWN" in unknown.aside
    assert fresh.json("images", "list").json == {"images": []}


def test_a_tag_that_moves_changes_nothing(fresh: Terminal, tmp_path: Path) -> None:
    first = fresh.actum("images", "add", str(_archive(tmp_path))).text.split()[-1]
    _run_in(fresh, first)
    approve(fresh, "shell")
    second = fresh.actum("images", "add", str(_archive(tmp_path, b"another\n"))).text.split()[-1]
    assert second != first
    assert fresh.actum("sh", "cat /etc/in-image").text == "of the image\n"
    assert fresh.actum("images", "show", "made:1").code == 3  # two images have this name
