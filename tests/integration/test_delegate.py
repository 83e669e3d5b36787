"""An ordinary user gets limits from root, by one command, and loses them by another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum.errors import Refused
from actum.sandbox.cgroup import Layout
from actum.sandbox.cgroup_v1 import Hierarchies
from actum.sandbox.delegate import delegate, revoke

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can delegate"),
    pytest.mark.skipif(
        Layout.of_host().version() != 1, reason="this host has version 2, as tests/vm has"
    ),
]

#: Nobody's number: one per test process, so that two runs at once do not meet.
UID = 70_000 + os.getpid() % 100_000


def actum(*words: str, stdin: str = "", uid: int = 0, home: Path | None = None):
    environment = {**os.environ, "LOGNAME": "another"}
    if home is not None:
        environment |= {"HOME": str(home), "TMPDIR": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "actum.doors.cli.main", *words],
        input=stdin,
        capture_output=True,
        text=True,
        user=uid,
        group=uid,
        extra_groups=[],
        env=environment,
        cwd=home or "/",
        timeout=120,
    )


@pytest.fixture
def home() -> Iterator[Path]:
    """A place of the user's own; pytest's folders are closed to others."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="actum-delegate-"))
    os.chown(folder, UID, UID)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def delegated() -> Iterator[tuple[str, ...]]:
    yield delegate(UID, UID)
    revoke(UID)


@pytest.mark.req("004-8")
def test_without_a_subtree_the_command_that_makes_one_is_named(home: Path):
    answer = actum("doctor", "--json", uid=UID, home=home)
    (local, *_others) = json.loads(answer.stdout)["runners"]
    limits = {row["limit"]: row for row in local["limits"]}
    assert not limits["memory_mb"]["enforceable"]
    assert f"sudo actum host delegate --user {UID}" in limits["memory_mb"]["remedy"]
    refused = actum("try", "--json", stdin="echo ran", uid=UID, home=home)
    assert refused.returncode == 3
    document = json.loads(refused.stdout)
    assert document["result"] is None
    assert document["reason_codes"] == ["LIMIT_NOT_ENFORCEABLE"]
    assert f"sudo actum host delegate --user {UID}" in refused.stdout


@pytest.mark.usefixtures("delegated")
def test_with_a_subtree_a_users_memory_limit_holds_with_proof(home: Path):
    program = "x = b'x' * (900 << 20)"
    answer = actum("try", "python", "--json", stdin=program, uid=UID, home=home)
    document = json.loads(answer.stdout)
    assert document["outcome"] == "RESOURCE_KILLED"
    assert "memory.oom_control oom_kill 0 -> 1" in document["result"]["error_reason"]
    assert answer.returncode == 5


def test_the_subtrees_own_limits_stay_roots(delegated: tuple[str, ...]):
    assert [os.stat(folder).st_uid for folder in delegated] == [UID] * len(delegated)
    limits = [
        f"{folder}/{name}"
        for folder in delegated
        for name in ("memory.limit_in_bytes", "pids.max", "cpu.cfs_quota_us", "tasks")
        if os.path.exists(f"{folder}/{name}")
    ]
    assert len(limits) > len(delegated)
    assert {os.stat(path).st_uid for path in limits} == {0}


def test_a_subtree_is_not_taken_back_under_a_living_sandbox(delegated: tuple[str, ...]):
    in_use = f"{delegated[0]}/in-use"
    os.mkdir(in_use)
    with pytest.raises(Refused) as caught:
        revoke(UID)
    os.rmdir(in_use)
    assert caught.value.code == "DELEGATION_IN_USE"
    assert os.path.isdir(delegated[0])


def test_taking_back_what_was_never_given_is_said():
    with pytest.raises(Refused) as caught:
        revoke(UID)
    assert caught.value.code == "DELEGATION_MISSING"


def test_the_command_gives_and_takes():
    folders = set(Hierarchies.of(Layout.of_host()).parents(UID).values())
    given = actum("host", "delegate", "--user", str(UID), "--json")
    assert set(json.loads(given.stdout)["folders"]) == folders
    assert all(os.path.isdir(folder) for folder in folders)
    taken = actum("host", "revoke", "--user", str(UID))
    assert taken.returncode == 0
    assert not any(os.path.exists(folder) for folder in folders)
    again = actum("host", "revoke", "--user", str(UID))
    assert again.returncode == 3
    assert "DELEGATION_MISSING" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--user", "nobody-of-that-name"), "there is no user"),
        (("--user", "root"), "root needs no subtree"),
        (("--user", str(UID), "--pid", "1"), "belongs to uid 0"),
        (("--user", str(UID), "--pid", "4194305"), "there is no process"),
    ],
)
def test_a_wrong_word_is_answered_before_anything_is_made(words: tuple[str, ...], said: str):
    answer = actum("host", "delegate", *words)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert not os.path.exists(f"{Layout.of_host().v1['memory']}/actum/uid-{UID}")


def test_an_ordinary_user_cannot_delegate(home: Path):
    answer = actum("host", "delegate", "--user", str(UID), uid=UID, home=home)
    assert answer.returncode == 3
    assert "DELEGATION_IMPOSSIBLE" in answer.stderr
