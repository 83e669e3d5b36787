"""`actum snapshot`: a project's folder from one place to another, through a folder and a bucket."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import actum
from actum.contract.model import RunnerKind
from actum.doors.cli.group import cli
from actum.errors import Refused
from actum.project import create
from buckets.server import KEY, KEY_ID, Server
from common.settings import approve

MakeFolder = Callable[[], Path]


@pytest.fixture
def project(new_folder: MakeFolder) -> Path:
    folder = new_folder()
    create(folder, RunnerKind.LOCAL, by="user:test", date="2026-11-19")
    (folder / "notes.txt").write_text("first\n")
    (folder / "link").symlink_to("notes.txt")
    return folder


def run(project: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(project), "snapshot", *words])


def test_save_show_restore_and_gc(project: Path, tmp_path: Path) -> None:
    store = ("--store", f"file://{tmp_path}/store")
    first = run(project, "save", *store)
    name = first.stdout.strip()
    assert (first.exit_code, len(name)) == (0, 64)
    again = run(project, "save", *store)
    assert again.stdout.strip() == name
    assert "was there already" in again.stderr
    (project / "notes.txt").write_text("second\n")
    second = json.loads(run(project, "save", *store, "--base", name, "--json").stdout)
    assert second["objects_written"] == 2
    shown = json.loads(run(project, "show", name, *store, "--json").stdout)
    assert {"kind": "link", "path": "link"} in shown["paths"]
    assert not any(".actum" in each["path"] for each in shown["paths"])
    assert "notes.txt" in run(project, "show", name, *store).stdout
    target = tmp_path / "elsewhere"
    restored = run(project, "restore", name, str(target), *store)
    assert f"names to {target}" in restored.stdout
    assert (target / "notes.txt").read_text() == "first\n"
    assert not (target / ".actum").exists()
    done = run(project, "gc", "--keep", name, "--older-than", "2h", *store)
    assert done.stdout == "0 objects removed, 0 bytes; 2 snapshots stay.\n"


def test_the_library_has_the_same(project: Path, tmp_path: Path) -> None:
    with actum.Runtime.open(project, pool=False) as runtime:
        snapshots = runtime.snapshots(f"file://{tmp_path}/store")
        name = snapshots.save().name
        assert b"notes.txt" in snapshots.show(name).manifest.entries
        snapshots.restore(name, tmp_path / "target")
        assert snapshots.expire([name], older_than_s=7_200).kept == 1
    assert (tmp_path / "target" / "notes.txt").read_text() == "first\n"


@pytest.mark.parametrize("inside", ["store", ".actum/store"])
def test_a_store_in_the_project_is_refused(inside: str, project: Path) -> None:
    store = f"file://{project}/{inside}"
    with (
        actum.Runtime.open(project, pool=False) as runtime,
        pytest.raises(Refused, match="is in the project") as refused,
    ):
        runtime.snapshots(store).save()
    assert refused.value.code == "OBJECT_STORE_INVALID"
    assert not (project / inside).exists()


def test_a_target_in_the_project_is_refused(project: Path, tmp_path: Path) -> None:
    with actum.Runtime.open(project, pool=False) as runtime:
        snapshots = runtime.snapshots(f"file://{tmp_path}/store")
        name = snapshots.save().name
        with pytest.raises(Refused) as refused:
            snapshots.restore(name, project / "inside")
    assert refused.value.code == "SNAPSHOT_TARGET_INSIDE"


def test_credentials_of_a_bucket_are_approved_secrets(
    project: Path, tmp_path: Path, bucket_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_ID", KEY_ID)
    monkeypatch.setenv("STORE_KEY", KEY)
    store = ("--store", f"s3://{bucket_server.bucket()}/team", "--endpoint", bucket_server.endpoint)
    keys = ("--access-key", "store_id", "--secret-key", "store_key")
    without = run(project, "save", *store)
    assert isinstance(without.exception, Refused)
    assert without.exception.code == "OBJECT_STORE_INVALID"
    missing = run(project, "save", *store, *keys)
    assert isinstance(missing.exception, Refused)
    assert missing.exception.code == "SECRET_MISSING"
    with open(project / "actum.toml", "a", encoding="utf-8") as file:
        file.write(
            '[secrets]\nstore_id = { env = "STORE_ID" }\nstore_key = { env = "STORE_KEY" }\n'
        )
    changed = run(project, "save", *store, *keys)
    assert isinstance(changed.exception, Refused)
    assert changed.exception.code == "SETTINGS_CHANGED"
    approve(project)
    saved = run(project, "save", *store, *keys)
    assert saved.exit_code == 0, saved.output
    name = saved.stdout.strip()
    restored = run(project, "restore", name, str(tmp_path / "elsewhere"), *store, *keys)
    assert restored.exit_code == 0, restored.output
    assert (tmp_path / "elsewhere" / "notes.txt").read_text() == "first\n"
    assert KEY not in saved.output + restored.output
