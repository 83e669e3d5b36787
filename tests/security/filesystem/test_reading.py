"""What is not granted cannot be read, by whatever name; the same script reads it outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

WAYS = {
    "its absolute path": 'cat "$1"',
    "a relative path": "cat ../../elsewhere/secret",
    "the root of a process": 'cat "/proc/self/root$1"',
    "the directory of a process": "cat /proc/self/cwd/../../elsewhere/secret",
    "a symlink": 'ln -s "$1" link; cat link',
    "a symlink to its directory": 'ln -s "$(dirname "$1")" folder; cat folder/secret',
    "a chain of links and dots": 'ln -s "${1%/*}/../elsewhere" a; ln -s a/. b; cat b/secret',
    "a hard link": 'ln "$1" hard; cat hard',
    "a descriptor of its directory": 'exec 3< "$(dirname "$1")"; cat /proc/self/fd/3/secret',
    "the shell of the parent": 'cat "/proc/$$/root$1"',
}


@pytest.mark.req("000-14", "004-44", "004-4")
@pytest.mark.parametrize("way", WAYS)
def test_a_private_file_elsewhere_cannot_be_read_through(jail: Jail, way: str) -> None:
    secret = jail.elsewhere / "secret"
    secret.write_text("SECRET")
    secret.chmod(0o600)
    script = f"{{ {WAYS[way]}; }} 2>/dev/null; true"
    inside = jail.sh(script, str(secret))
    for planted in ("link", "folder", "a", "b", "hard"):
        (jail.work / planted).unlink(missing_ok=True)
    assert jail.outside(script, str(secret)) == "SECRET"
    assert jail.said(inside) == ""


@pytest.mark.req("000-14", "000-16", "004-44")
def test_keys_and_records_of_the_project_cannot_be_read(jail: Jail) -> None:
    key = next((jail.root / ".actum" / "keys").iterdir())
    script = f'for f in "{key}" "../.actum/actum.db" "{jail.root}/.actum/actum.db"; do '
    script += 'head -c 1 "$f" >/dev/null 2>&1 && echo READ; done; ls ../.actum 2>/dev/null; true'
    assert jail.outside(script).startswith("READ\nREAD\nREAD")
    assert jail.said(jail.sh(script)) == ""
    assert jail.said(jail.sh(script.replace("../", "./"), cwd=jail.root)) == ""


@pytest.mark.req("004-44")
def test_the_hosts_passwords_homes_and_mounts_are_not_there(jail: Jail) -> None:
    places = "/etc/shadow /root /home /var/lib /var/log /boot /run/lock /srv /mnt /sys/class"
    script = f"for p in {places}; do [ -e $p ] && echo $p; done; true"
    assert "/etc/shadow" in jail.outside(script)
    assert jail.said(jail.sh(script)) == ""


@pytest.mark.req("004-44")
def test_nothing_but_the_granted_tree_and_the_system_is_listed(jail: Jail) -> None:
    top = jail.root.parts[1]
    inside = set(jail.said(jail.sh("ls -A /")).split())
    merged = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}
    assert inside <= merged | {"usr", "etc", "dev", "proc", "tmp", "var", "run", "artifacts", top}
    siblings = jail.said(jail.sh(f'ls -A "{jail.root.parent}"'))
    assert siblings == "project"
    assert "elsewhere" in os.listdir(jail.root.parent)


@pytest.mark.req("004-44")
def test_no_block_or_foreign_device_can_be_opened(jail: Jail) -> None:
    assert jail.said(jail.sh("ls /dev")).split() == sorted(
        ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]
    )
    script = "mknod sda b 8 0 2>/dev/null && echo MADE; mknod mem c 1 1 2>/dev/null && echo MADE"
    assert jail.said(jail.sh(script + "; true")) == ""


def test_openat2_offers_no_second_way_in(jail: Jail) -> None:
    (jail.elsewhere / "plain").write_text("x")
    path = str(jail.elsewhere / "plain")
    assert jail.freely("openat2-read", path, namespaces=False) == "ok"
    assert jail.said(jail.attempt("openat2-read", path)) == "ENOSYS\ncode 0"


@pytest.mark.req("004-44")
def test_the_init_has_no_descriptor_environment_or_memory_to_look_into(jail: Jail) -> None:
    script = "ls -d /proc/1 2>/dev/null; cat /proc/1/environ /proc/1/maps /proc/1/mem 2>/dev/null;"
    script += "ls /proc/1/fd /proc/1/root /proc/1/cwd 2>/dev/null; true"
    assert jail.said(jail.sh(script)) == ""
    listed = jail.said(jail.sh("ls /proc | grep -c '^[0-9]'"))
    assert int(listed) <= 4  # the shell, ls and grep: only the tool's own


@pytest.mark.req("000-14")
def test_a_granted_file_can_be_read_even_if_it_is_private(jail: Jail) -> None:
    """The positive side: privacy is from others, not from the caller's own tool."""
    (jail.work / "mine").write_text("MINE")
    (jail.work / "mine").chmod(0o600)
    assert jail.said(jail.sh("cat mine")) == "MINE"


DENIED = {
    "its own path": "cat safe/secret/file",
    "its absolute path": 'cat "$PWD/safe/secret/file"',
    "dots": "cat safe/../safe/./secret/file",
    "a symlink": "ln -s safe/secret/file l; cat l",
    "a symlinked directory": "ln -s safe d; cat d/secret/file",
    "a renamed ancestor": "mv safe moved; cat moved/secret/file",
    "a renamed ancestor and back": "mv safe moved; mkdir safe; cat moved/secret/file",
    "a hard link": "ln safe/secret/file h; cat h",
    "another mount's view": 'cat "/proc/self/root$PWD/safe/secret/file"',
    "moving it away": "mv safe/secret gone; cat gone/file",
    "removing it": "rm -rf safe/secret; cat safe/secret/file",
    "copying the tree": "cp -r safe copy; cat copy/secret/file",
    "archiving it": "tar cf - safe | tar xOf - safe/secret/file",
}


@pytest.mark.req("000-16")
@pytest.mark.parametrize("way", DENIED)
def test_a_denied_directory_stays_hidden_through(jail: Jail, way: str) -> None:
    def plant(folder: Path) -> Path:
        (folder / "safe" / "secret").mkdir(parents=True)
        (folder / "safe" / "secret" / "file").write_text("SECRET")
        return folder

    script = f"{{ {DENIED[way]}; }} 2>/dev/null; true"
    free = plant(jail.fresh_work())
    control = jail.outside(script, cwd=free)
    jailed = plant(jail.fresh_work())
    result = jail.sh(script, limits={"sandbox.filesystem.deny": ["safe/secret"]})
    assert jail.said(result) == ""
    if way != "removing it":
        assert control == "SECRET"
    found = [path.read_text() for path in jailed.rglob("secret/file")]
    assert found == ["SECRET"]  # and it was not removed or changed either


@pytest.mark.req("000-16")
def test_deny_wins_over_an_explicit_read_and_write_of_the_same_path(jail: Jail) -> None:
    (jail.work / "both").mkdir()
    (jail.work / "both" / "file").write_text("SECRET")
    lists = {"read": ["."], "write": ["."], "deny": ["both"]}
    fields = {f"sandbox.filesystem.{name}": value for name, value in lists.items()}
    result = jail.sh("cat both/file; echo x > both/new; ls both; true", limits=fields)
    assert jail.said(result) == ""
    assert os.listdir(jail.work / "both") == ["file"]


@pytest.mark.req("000-14")
def test_an_explicit_read_list_is_all_that_can_be_read(jail: Jail) -> None:
    for name in ("one", "two"):
        (jail.work / name).mkdir()
        (jail.work / name / "file").write_text(name)
    above = os.path.relpath(jail.root, jail.work / "one")
    (jail.root / "of-the-project").write_text("seen at level standard")
    script = f"cat file ../two/file {above}/of-the-project 2>/dev/null; true"
    here = jail.work / "one"
    assert jail.outside(script, cwd=here) == "onetwoseen at level standard"
    assert jail.said(jail.sh(script, cwd=here)) == "onetwoseen at level standard"
    listed = {"sandbox.filesystem.read": ["."]}
    assert jail.said(jail.sh(script, cwd=here, limits=listed)) == "one"
    both = {"sandbox.filesystem.read": [".", "../two"]}
    assert jail.said(jail.sh(script, cwd=here, limits=both)) == "onetwo"
