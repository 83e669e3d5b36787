"""Where no user namespace can be made, the caller gets one error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ASK = """
import os, sys
from actum import kernel

uid, gid = os.geteuid(), os.getegid()
kernel.unshare(kernel.CLONE_NEWUSER)
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
if sys.argv[2] == "refused":
    os.chroot(sys.argv[1])  # to a process in there the kernel gives none
try:
    os.close(kernel.mapping_namespace("0 0 1", "0 0 1"))
    answer = "made"
except OSError as error:
    answer = error.strerror
os.write(1, f"{answer}\\n".encode())
"""


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("case", "answer"),
    [("refused", "no user namespace can be made: Operation not permitted"), ("granted", "made")],
)
def test_a_user_namespace_is_made_or_refused_in_one_process(
    tmp_path: Path, case: str, answer: str
) -> None:
    """The helper that was to hold it never goes on as a second copy of its parent."""
    asked = [sys.executable, "-c", _ASK, str(tmp_path), case]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines() == [answer]
