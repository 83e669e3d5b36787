"""Evidence of a real project as one archive: of executions, refusals, decisions and work items."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def worked(project: Terminal) -> dict[str, Any]:
    shutil.copytree(ROOT / "examples/work", project.folder, dirs_exist_ok=True)
    ran = project.shell('echo done > "$ACTUM_ARTIFACTS/report"').json
    refused = project.json("exec", "ripgrep", "-p", "pattern=x", "-p", "path=/etc").json
    held = project.shell("mkdir -p rules; echo x > rules/a").json
    request = held["workspace"]["request_id"]
    decided = project.actum("approvals", "approve", request, "--by", "boss", "--why", "looked")
    assert decided.code == 0, decided.aside
    items = project.json("work", "work.yaml").json["results"]
    assert project.actum("keys", "rotate").code == 0
    later = project.shell("exit 3").json
    return {"ran": ran, "refused": refused, "held": held, "items": items, "later": later}


def elsewhere(project: Terminal, folder: Path, *selection: str) -> tuple[Terminal, dict[str, Any]]:
    """A folder without a project that has the archive and the current key."""
    target = folder / "evidence.tar"
    said = project.json("evidence", "export", *selection, "-o", str(target))
    assert said.code == 0, said
    (folder / "project.pub").write_text(project.actum("keys", "show", "--pem").text)
    return Terminal(folder), said.json


def test_everything_verifies_without_the_project(
    project: Terminal, worked: dict[str, Any], tmp_path: Path
) -> None:
    there, said = elsewhere(project, tmp_path, "--all", "--files")
    answer = there.json("verify", "evidence.tar", "--key", "project.pub")
    assert answer.code == 0, answer.stdout
    subjects = [each["subject"] for each in answer.json["findings"] if each["check"] == "verified"]
    results = [worked["ran"], worked["refused"], worked["held"], worked["later"]]
    for result in [*results, *worked["items"].values()]:
        assert f"receipt {result['receipt_id']}" in subjects
    assert said["receipts"] == len(subjects)
    in_the_project = project.actum("verify", str(tmp_path / "evidence.tar"))
    assert in_the_project.code == 0, in_the_project.text


def test_a_work_item_brings_the_receipts_of_its_calls(
    project: Terminal, worked: dict[str, Any], tmp_path: Path
) -> None:
    receipt = worked["items"]["greeting"]["receipt_id"]
    there, said = elsewhere(project, tmp_path, receipt)
    shown = project.json("receipts", "show", receipt).json["statement"]
    calls = shown["predicate"]["capsule"]["tool_trace"]
    assert said["receipts"] == 1 + len(calls) > 1
    assert there.actum("verify", "evidence.tar", "--key", "project.pub").code == 0


def test_an_age_and_a_date_select_by_the_end(
    project: Terminal, worked: dict[str, Any], tmp_path: Path
) -> None:
    for number, (since, some) in enumerate(
        {"1d": True, "2000-01-01": True, "2999-01-01": False}.items()
    ):
        target = tmp_path / f"{number}.tar"
        answer = project.json("evidence", "export", "--since", since, "-o", str(target))
        assert (answer.code == 0) == target.exists() == some, answer
        if not some:
            assert answer.json["error"]["code"] == "NOTHING_TO_EXPORT"


def test_one_receipt_of_the_archive_verifies_with_tar_and_openssl(
    project: Terminal, worked: dict[str, Any], tmp_path: Path
) -> None:
    receipt = worked["later"]["receipt_id"]
    elsewhere(project, tmp_path, receipt)
    script = f"""
        set -e
        tar -xOf evidence.tar actum-evidence/receipts/{receipt}/receipt.json > receipt.json
        sed 's/.*"payload":"\\([^"]*\\)".*/\\1/' receipt.json | base64 -d > statement.json
        sed 's/.*"sig":"\\([^"]*\\)".*/\\1/' receipt.json | base64 -d > signature.bin
        {{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(wc -c < statement.json)"
           cat statement.json; }} > signed.bin
        openssl pkeyutl -verify -pubin -inkey project.pub -rawin -in signed.bin \\
            -sigfile signature.bin
    """
    clean = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, env=clean, capture_output=True)
    assert done.returncode == 0, done
    assert (
        json.loads((tmp_path / "statement.json").read_bytes())["predicate"]["outcome"]
        == "TOOL_ERROR"
    )


def test_records_and_contents_are_there_only_on_request(
    project: Terminal, worked: dict[str, Any], tmp_path: Path
) -> None:
    receipt = worked["ran"]["receipt_id"]
    for options, expected in (((), False), (("--files",), True)):
        folder = tmp_path / str(len(options))
        folder.mkdir()
        elsewhere(project, folder, receipt, *options)
        content = (folder / "evidence.tar").read_bytes()
        assert (b"done\n" in content) == expected
        assert (b"/evidence.json" in content) == expected
