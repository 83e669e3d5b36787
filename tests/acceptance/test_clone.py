"""A clone of a project: `init` and `exec` say which key to trust, and how."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .conftest import make_project
from .terminal import Terminal

pytestmark = pytest.mark.sandbox


@pytest.fixture
def original(tmp_path: Path) -> Terminal:
    return make_project(tmp_path / "original")


@pytest.fixture
def clone(original: Terminal, tmp_path: Path) -> Terminal:
    """What git would clone: everything but `.actum/`, which ignores itself."""
    folder = tmp_path / "clone"
    shutil.copytree(original.folder, folder, ignore=shutil.ignore_patterns(".actum"))
    return Terminal(folder)


def keyid(project: Terminal) -> str:
    return str(project.json("keys", "show").json["keyid"])


def test_before_init_the_clone_is_called_one(clone: Terminal) -> None:
    refused = clone.actum("exec", "shell", "--stdin", "-", stdin=b"echo ran")
    assert (refused.code, refused.text) == (3, "")
    assert "as a clone has" in refused.aside
    assert f"actum init {clone.folder}" in refused.aside


def test_init_needs_no_runner_and_names_the_key_to_trust(
    clone: Terminal, original: Terminal
) -> None:
    files = {path: path.read_bytes() for path in clone.folder.rglob("*") if path.is_file()}
    made = clone.actum("init")
    assert made.code == 0
    assert "Made in" in made.text and ".actum/" in made.text
    assert f"Every execution is refused: tools.lock is signed by {keyid(original)}" in made.text
    assert {path: path.read_bytes() for path in files} == files
    document = clone.json("init").json
    assert keyid(original) in document["untrusted"]
    assert "actum keys show" in document["next"]


def test_exec_names_the_same_key_and_the_steps_lead_to_a_verified_receipt(
    clone: Terminal, original: Terminal
) -> None:
    clone.actum("init")
    refused = clone.shell("echo ran")
    assert (refused.code, refused.violations) == (3, [("LOCK_UNTRUSTED", "")])
    message = refused.json["violations"][0]["message"]
    assert keyid(original) in message
    steps = ("`actum keys show`", "`keys` under [trust]", "`actum config approve --by WHO`")
    for step in steps:
        assert step in message
    # The steps, as written.
    pem = original.json("keys", "show").json["pem"]
    file = clone.folder / "actum.toml"
    file.write_text(re.sub(r"(?m)^keys = \[\]$", f'keys = ["""{pem}"""]', file.read_text()))
    assert clone.actum("config", "approve", "--by", "me").code == 0
    done = clone.shell("echo ran")
    assert (done.code, done.json["result"]["stdout"]) == (0, "ran\n")
    assert clone.actum("verify").code == 0
    assert clone.json("init").json["untrusted"] is None


def test_a_key_that_the_clone_names_itself_is_trusted_by_init(
    original: Terminal, tmp_path: Path
) -> None:
    pem = original.json("keys", "show").json["pem"]
    file = original.folder / "actum.toml"
    file.write_text(file.read_text().replace("keys = []", f'keys = ["""{pem}"""]'))
    assert original.actum("config", "approve", "--by", "owner").code == 0
    folder = tmp_path / "clone"
    shutil.copytree(original.folder, folder, ignore=shutil.ignore_patterns(".actum"))
    clone = Terminal(folder)
    made = clone.json("init").json
    assert (made["trusted_keys"], made["untrusted"]) == ([keyid(original)], None)
    assert clone.shell("echo ran").code == 0


def test_a_folder_with_a_part_of_a_project_is_not_filled_without_a_runner(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    refused = Terminal(tmp_path).actum("init")
    assert refused.code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["tools"]
