"""`actum config diff` and `approve`: what of actum.toml may govern, and who said so."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from actum.contract.os_user import os_user
from actum.registry.lock import parse_lock, read_lock, write_lock
from actum.registry.model import SettingsPin
from actum.settings_file import read_settings
from actum.store.keys import Keyring
from actum.value import replace

from .terminal import Answer, Terminal

SECRET = '\n[secrets]\nTOKEN = { command = ["/bin/echo", "value"] }\n'


def add(terminal: Terminal, toml: str) -> None:
    with (terminal.folder / "actum.toml").open("a") as file:
        file.write(toml)


def check(terminal: Terminal) -> Answer:
    """Everything up to the start of an execution."""
    return terminal.json("check", "shell", stdin=b"true")


def changed(answer: Answer) -> list[str]:
    """The settings that a refusal names."""
    assert answer.code == 3, answer.stdout
    assert {code for code, _ in answer.violations} == {"SETTINGS_CHANGED"}
    return [field for _, field in answer.violations]


def diff(terminal: Terminal) -> dict[str, tuple[object, object]]:
    answer = terminal.json("config", "diff")
    found = {each["setting"]: (each["old"], each["new"]) for each in answer.json["differences"]}
    assert answer.code == (1 if found else 0)
    assert answer.json["approved"] is (not found)
    return found


def approve(terminal: Terminal, *words: str) -> Answer:
    answer = terminal.actum("config", "approve", "--by", "ada", *words)
    assert answer.code == 0, answer.aside
    return answer


def as_of_version_0_1(folder: Path) -> None:
    """The lock and the home as version 0.1 has left them."""
    keyring = Keyring.open(folder / ".actum")
    lock = read_lock(folder, keyring.trusted)
    write_lock(folder, replace(lock, settings=None, settings_history=()), keyring.signer)
    assert json.loads((folder / "tools.lock").read_bytes())["version"] == 1
    (folder / ".actum/anchor.json").unlink()


def test_init_approves_what_it_writes(fresh: Terminal) -> None:
    lock = json.loads((fresh.folder / "tools.lock").read_bytes())
    assert lock["version"] == 2
    assert lock["settings"]["values"] == {"runners.local": True}
    assert (lock["settings"]["uid"], lock["settings"]["user"]) == (os.getuid(), os_user().name)
    assert diff(fresh) == {}
    assert check(fresh).code == 0


@pytest.mark.sandbox
def test_a_change_is_refused_until_it_is_approved_and_shown_from_old_to_new(
    fresh: Terminal,
) -> None:
    add(fresh, SECRET + "[egress]\nmax_mb = 9000\n")
    answer = fresh.shell("echo ran")
    assert (answer.code, answer.json["outcome"]) == (3, "REJECTED")
    assert answer.json["reason_codes"] == ["SETTINGS_CHANGED"]
    assert [field for _, field in answer.violations] == ["egress.max_mb", "secrets.TOKEN"]
    message = answer.json["violations"][0]["message"]
    assert "actum config diff" in message
    assert "actum config approve --by WHO" in message
    assert fresh.actum("verify", answer.json["receipt_id"]).code == 0  # a refusal is evidence
    command = {"command": ["/bin/echo", "value"]}
    assert diff(fresh) == {"egress.max_mb": (8192, 9000), "secrets.TOKEN": (None, command)}
    text = fresh.actum("config", "diff").text
    assert "egress.max_mb: 8192 → 9000" in text
    assert 'secrets.TOKEN: not set → {"command": ["/bin/echo", "value"]}' in text
    assert "egress.max_mb: 8192 → 9000" in approve(fresh, "--why", "it is needed").text
    assert fresh.shell("echo ran").json["outcome"] == "SUCCEEDED"
    assert diff(fresh) == {}
    lock = json.loads((fresh.folder / "tools.lock").read_bytes())
    assert lock["settings_history"][-1] == {
        "approver": "ada",
        "role": "any",
        "changed": ["egress.max_mb", "secrets.TOKEN"],
        "date": lock["settings"]["date"],
        "sha256": lock["settings_history"][-1]["sha256"],
        "uid": os.getuid(),
        "user": os_user().name,
        "why": "it is needed",
    }


def test_what_only_narrows_or_bounds_this_host_needs_no_approval(fresh: Terminal) -> None:
    add(fresh, "\n[egress]\nmax_mb = 5\n[limits]\nmax_concurrent = 900\nmax_queued = 1\n")
    assert check(fresh).code == 0
    approve(fresh)
    # What was approved is the ceiling from now on, not the default.
    file = fresh.folder / "actum.toml"
    file.write_text(file.read_text().replace("max_mb = 5", "max_mb = 6"))
    assert changed(check(fresh)) == ["egress.max_mb"]


def test_comments_and_order_are_no_change(fresh: Terminal) -> None:
    file = fresh.folder / "actum.toml"
    file.write_text("# another comment\n[trust]\nkeys = []\n[runners]\nlocal = true\n")
    assert check(fresh).code == 0
    assert diff(fresh) == {}


def test_a_project_of_version_0_1_with_defaults_goes_on(fresh: Terminal) -> None:
    as_of_version_0_1(fresh.folder)
    add(fresh, "\n[limits]\nmax_queued = 7\n")
    assert check(fresh).code == 0
    assert diff(fresh) == {}
    assert "needs an approval" in fresh.actum("config", "diff").text


def test_a_project_of_version_0_1_is_asked_once_for_exactly_its_risky_settings(
    fresh: Terminal,
) -> None:
    as_of_version_0_1(fresh.folder)
    add(fresh, SECRET + '[network]\napis = ["api.test"]\n[limits]\nmax_queued = 7\n')
    answer = check(fresh)
    assert changed(answer) == ["network.apis", "secrets.TOKEN"]
    assert set(diff(fresh)) == {"network.apis", "secrets.TOKEN"}
    asked = fresh.actum("exec", "shell")
    assert "config approve" in asked.aside
    approve(fresh)
    assert check(fresh).code == 0
    assert json.loads((fresh.folder / "tools.lock").read_bytes())["version"] == 2


def test_without_the_approval_in_the_lock_nothing_runs(fresh: Terminal) -> None:
    """Removed by hand, the lock is not signed; and the lock from before approves no settings."""
    folder = fresh.folder
    file = folder / "tools.lock"
    approved = file.read_bytes()
    document = json.loads(approved)
    del document["settings"], document["settings_history"]
    file.write_text(json.dumps({**document, "version": 1}))
    assert check(fresh).violations == [("LOCK_UNTRUSTED", "")]
    keyring = Keyring.open(folder / ".actum")
    lock = parse_lock(approved, keyring.trusted)
    # An older one, out of the repository's history.
    write_lock(folder, replace(lock, settings=None, settings_history=()), keyring.signer)
    assert changed(check(fresh)) == ["runners.local"]
    file.write_bytes(approved)
    assert check(fresh).code == 0


def trust(folder: Path, *pems: str) -> None:
    file = folder / "actum.toml"
    listed = ", ".join(json.dumps(pem) for pem in pems)
    text = file.read_text()
    start = text.index("keys = ")
    file.write_text(text[:start] + f"keys = [{listed}]\n")


def resign(folder: Path, keyring: Keyring, signer: Keyring) -> None:
    """The lock with the settings as they are now, approved and signed by another key."""
    lock = read_lock(folder, {**keyring.trusted, **signer.trusted})
    pin = SettingsPin(
        values=dict(read_settings(folder).approvable),
        approver="mallory",
        user="mallory",
        uid=1,
        date="2026-11-15",
        why="",
    )
    write_lock(folder, replace(lock, settings=pin), signer.signer)


def test_a_new_key_and_the_lock_that_it_signed_do_not_approve_each_other(
    fresh: Terminal, tmp_path: Path
) -> None:
    folder = fresh.folder
    own = Keyring.open(folder / ".actum")
    stranger = Keyring.open(tmp_path / "stranger", create=True)
    trust(folder, stranger.signer.public.pem)
    add(fresh, SECRET)
    resign(folder, own, stranger)
    answer = check(fresh)
    assert [code for code, _ in answer.violations] == ["SETTINGS_CHANGED"]
    assert stranger.signer.keyid in answer.json["violations"][0]["message"]
    state = fresh.json("config", "diff")
    assert (state.code, state.json["lock_trusted"]) == (1, False)
    assert state.json["unapproved_keys"] == [stranger.signer.keyid]
    # A person who knows the key's owner approves it; the lock stays as the owner has signed it.
    before = (folder / "tools.lock").read_bytes()
    approve(fresh)
    assert (folder / "tools.lock").read_bytes() == before
    assert check(fresh).code == 0


def test_a_key_that_a_trusted_one_approved_counts(fresh: Terminal, tmp_path: Path) -> None:
    folder = fresh.folder
    own = Keyring.open(folder / ".actum")
    first = Keyring.open(tmp_path / "first", create=True)
    second = Keyring.open(tmp_path / "second", create=True)
    trust(folder, first.signer.public.pem)
    approve(fresh)
    trust(folder, first.signer.public.pem, second.signer.public.pem)
    resign(folder, own, first)
    assert check(fresh).code == 0
    resign(folder, first, second)
    assert check(fresh).code == 0
    trust(folder, second.signer.public.pem)
    assert changed(check(fresh)) == ["trust.keys"]


def test_a_clone_counts_the_keys_it_was_initialised_with_and_no_later_ones(
    fresh: Terminal, tmp_path: Path
) -> None:
    origin = fresh.folder
    owner = Keyring.open(origin / ".actum")
    trust(origin, owner.signer.public.pem)
    approve(fresh)
    clone = Terminal(tmp_path / "clone")
    shutil.copytree(origin, clone.folder, ignore=shutil.ignore_patterns(".actum"))
    said = clone.actum("init", "--runner", "local")
    assert owner.signer.keyid in said.text
    assert check(clone).code == 0
    stranger = Keyring.open(tmp_path / "stranger", create=True)
    trust(clone.folder, owner.signer.public.pem, stranger.signer.public.pem)
    resign(clone.folder, owner, stranger)
    assert [code for code, _ in check(clone).violations] == ["SETTINGS_CHANGED"]
    # To run it again adopts nothing.
    assert clone.actum("init", "--runner", "local").code == 0
    assert [code for code, _ in check(clone).violations] == ["SETTINGS_CHANGED"]


def test_init_over_an_edited_file_approves_no_edit(fresh: Terminal) -> None:
    add(fresh, SECRET)
    (fresh.folder / "tools.lock").unlink()
    assert fresh.actum("init", "--runner", "local").code == 0
    assert fresh.actum("config", "diff").code == 1


def test_the_content_of_the_authorities_is_approved_with_their_path(fresh: Terminal) -> None:
    authorities = fresh.folder / "ca.pem"
    authorities.write_text("one\n")
    add(fresh, '\n[egress]\nca_file = "ca.pem"\n')
    approve(fresh)
    assert check(fresh).code == 0
    authorities.write_text("two\n")
    assert changed(check(fresh)) == ["egress.ca_file"]
    authorities.unlink()
    os.mkfifo(authorities)  # as a tool could leave it there; it is not waited for
    assert changed(check(fresh)) == ["egress.ca_file"]
    refused = fresh.actum("config", "approve", "--by", "ada")
    assert refused.code == 3
    assert "egress.ca_file" in refused.aside


def test_doctor_and_verify_mention_how_the_settings_stand(fresh: Terminal) -> None:
    fresh.shell("true")
    assert "settings: as approved" in fresh.actum("doctor").text
    assert "settings: as approved" in fresh.actum("verify", "--all").text
    add(fresh, SECRET)
    doctor = fresh.actum("doctor")
    assert doctor.code == 1
    assert "settings: not approved: secrets.TOKEN" in doctor.text
    verified = fresh.json("verify", "--all")
    assert verified.code == 0  # what was recorded is as true as before
    assert verified.json["settings"]["changed"] == ["secrets.TOKEN"]


def test_an_approval_names_who(fresh: Terminal) -> None:
    before = (fresh.folder / "tools.lock").read_bytes()
    assert fresh.actum("config", "approve").code == 2
    empty = fresh.actum("config", "approve", "--by", " ")
    assert empty.code == 3
    assert "by: it is empty" in empty.aside
    assert (fresh.folder / "tools.lock").read_bytes() == before
