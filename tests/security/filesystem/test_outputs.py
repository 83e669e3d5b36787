"""Files come out by value, and nothing that a tool plants among them is followed."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import pytest

from actum import Outcome, Result
from actum.contract.call import Plan, bound
from actum.contract.model import RunnerKind
from actum.runners.local import LocalRunner
from actum.value import replace
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox


def _artifacts(result: Result) -> dict[str, int]:
    assert result.result is not None
    return {it.path: it.size for it in result.result.artifacts if it.kind == "artifact"}


@pytest.mark.req("004-11", "004-27", "004-40", "000-77", "000-26")
def test_artifacts_are_collected_with_name_size_hash_and_trace(jail: Jail) -> None:
    result = jail.sh('cd "$ACTUM_ARTIFACTS"; printf hello > a; mkdir -p b/c; printf x > b/c/d')
    assert _artifacts(result.check()) == {"a": 5, "b/c/d": 1}
    assert result.result is not None
    first = result.result.artifacts[0]
    assert first.sha256 == hashlib.sha256(b"hello").hexdigest()
    assert first.trace_id == result.trace_id


READ_BACK = {
    "listing it": "ls /artifacts",
    "reading a file": "cat /artifacts/made",
    "reading its own descriptor": "exec 3> /artifacts/open; echo secret >&3; cat /proc/self/fd/3",
    "opening for both": "exec 3<> /artifacts/made && cat <&3",
    "moving it out": "mv /artifacts/made /tmp/out && cat /tmp/out",
    "linking it out": "ln /artifacts/made /tmp/out && cat /tmp/out",
    "a symlink": "ln -s /artifacts/made /tmp/out && cat /tmp/out",
    "running it": "echo 'echo ran' > /artifacts/run; chmod 755 /artifacts/run; /artifacts/run",
    "changing its mode": "chmod 777 /artifacts; ls /artifacts",
    "removing and listing": "rm /artifacts/made && echo removed",
    "a process's root": "cat /proc/self/root/artifacts/made",
}


@pytest.mark.req("004-45")
@pytest.mark.parametrize("way", READ_BACK)
def test_an_artifact_cannot_be_read_back_by(jail: Jail, way: str) -> None:
    script = f"echo secret > /artifacts/made; {{ {READ_BACK[way]}; }} 2>/dev/null; true"
    result = jail.sh(script)
    assert jail.said(result) == ""
    assert _artifacts(result)["made"] == 7
    # The same steps work in a directory that is not the artifacts directory.
    outside = script.replace("/artifacts", str(jail.elsewhere)).replace(
        "/tmp/out", f"{jail.work}/o"
    )
    assert jail.outside(f"rm -rf {jail.elsewhere}/*; {outside}") != ""


def test_an_artifact_cannot_be_mapped_or_copied_by_the_kernel(jail: Jail) -> None:
    program = """
import mmap, os
fd = os.open('/artifacts/f', os.O_CREAT | os.O_WRONLY)
os.write(fd, b'secret')
out = os.open('/tmp/o', os.O_CREAT | os.O_RDWR)
for name, act in {
    'mmap': lambda: mmap.mmap(fd, 6, prot=mmap.PROT_READ)[:6],
    'sendfile': lambda: os.sendfile(out, fd, 0, 6),
    'copy': lambda: os.copy_file_range(fd, out, 6, 0),
    'pread': lambda: os.pread(fd, 6, 0),
    'reopen': lambda: os.open(f'/proc/self/fd/{fd}', os.O_RDONLY),
}.items():
    try:
        print(name, act())
    except OSError:
        pass
"""
    assert jail.said(jail.python(program)) == ""


@pytest.mark.req("004-44", "000-76")
@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        ('ln -s "$1" out', "symbolic link"),
        ('mkdir d; ln -s "$(dirname "$1")" out', "symbolic link"),
        ("mkfifo out", "FIFO"),
        ("mkdir out", "director"),
        ("truncate -s 900M out", "over the total"),
        ("true", "missing"),
    ],
)
def test_a_planted_output_is_named_and_not_followed(jail: Jail, plant: str, reason: str) -> None:
    secret = jail.elsewhere / "secret"
    secret.write_text("SECRET")
    result = jail.sh(plant, str(secret), limits={"outputs.output_files": ["out"]})
    assert result.outcome is Outcome.OUTPUT_INVALID
    assert result.result is not None
    assert [it for it in result.result.artifacts if it.kind == "output_file"] == []
    assert reason in str(result.document())
    assert "SECRET" not in str(result.document())


@pytest.mark.req("000-25", "000-184")
def test_a_declared_output_file_is_collected(jail: Jail) -> None:
    result = jail.sh("printf done > out", limits={"outputs.output_files": ["out"]}).check()
    assert result.result is not None
    assert [(it.name, it.size) for it in result.result.artifacts] == [("out", 4)]


def test_an_output_swapped_for_a_link_while_it_is_collected_is_not_followed(jail: Jail) -> None:
    """Everything of the tool is dead before collection, so a swapper left behind does not help."""
    secret = jail.elsewhere / "secret"
    secret.write_text("SECRET" * 10)
    script = """
printf ok > real; cp real out
(trap '' TERM HUP; setsid sh -c '
  while :; do ln -sfn "$0" l; mv -T l out; cp real n; mv -T n out; done' "$1" \
  >/dev/null 2>&1 </dev/null &) ; sleep 0.2
"""
    for _ in range(3):
        jail.fresh_work()
        result = jail.sh(script, str(secret), limits={"outputs.output_files": ["out"]})
        assert "SECRET" not in str(result.document())
        for item in result.result.artifacts if result.result else ():
            assert item.size <= 2


@pytest.mark.req("000-77", "000-79")
def test_artifacts_over_the_total_are_named_and_never_kept_in_part(jail: Jail) -> None:
    result = jail.sh("cd /artifacts; head -c 7M /dev/zero > a; head -c 7M /dev/zero > b")
    assert result.outcome is Outcome.OUTPUT_INVALID
    assert _artifacts(result) == {"a": 7 << 20}
    assert "over the total" in str(result.document())
    whole = jail.sh("cd /artifacts; head -c 4M /dev/zero > a; head -c 6M /dev/zero > b")
    assert whole.outcome is Outcome.SUCCEEDED, "exactly as much as is permitted"
    assert _artifacts(whole) == {"a": 4 << 20, "b": 6 << 20}


def test_deep_and_numerous_artifacts_end_in_an_answer(jail: Jail) -> None:
    program = """
import os
os.chdir('/artifacts')
for _ in range(40):
    os.mkdir('d'); os.chdir('d')
open('bottom', 'w').close()
"""
    deep = jail.python(program)
    assert deep.outcome is Outcome.OUTPUT_INVALID
    assert "deeper than" in str(deep.document())
    many = jail.sh("cd /artifacts; i=0; while [ $i -lt 400 ]; do echo > $i; i=$((i+1)); done")
    assert many.outcome is Outcome.OUTPUT_INVALID
    assert "over the count" in str(many.document())


def test_artifact_storage_is_bounded(jail: Jail) -> None:
    result = jail.sh("head -c 64M /dev/zero > /artifacts/big; echo $?")
    assert jail.said(result) == "1"
    assert "No space left" in (result.result.stderr if result.result else "")


@pytest.mark.req("000-165")
def test_collected_files_come_in_a_stable_order(jail: Jail) -> None:
    names = [f"{index:02d}" for index in range(20)]
    script = "cd /artifacts; for n in " + " ".join(reversed(names)) + "; do echo > $n; done"
    assert list(_artifacts(jail.sh(script))) == names


def test_a_tools_files_cannot_make_the_host_block(jail: Jail) -> None:
    """A FIFO in place of an input, and a directory that cannot be entered."""
    jail.sh("mkfifo pipe; mkdir closed; chmod 000 closed").check()
    asked = {"outputs.output_files": ["pipe", "closed/file"]}
    result = jail.sh("true", limits=asked)
    assert result.outcome is Outcome.OUTPUT_INVALID
    os.chmod(jail.work / "closed", 0o700)


@pytest.mark.req("004-4", "000-16")
def test_a_file_below_a_denied_path_is_never_collected(own_jail: Jail) -> None:
    """Not even for a plan that names it, in a readable folder."""
    runner = own_jail.runtime.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner)
    plans: list[Plan] = []
    run = runner.run

    def remembered(plan: Plan, *words: Any, **named: Any) -> Any:
        plans.append(plan)
        return run(plan, *words, **named)

    runner.run = remembered  # type: ignore[method-assign]
    reads_all = {"sandbox.filesystem.read": [str(own_jail.root)], "sandbox.filesystem.write": []}
    own_jail.sh("true", limits=reads_all).check()
    (plan,) = plans
    home, open_file = own_jail.root / ".actum", own_jail.root / "actum.toml"
    assert str(home) in plan.policy.deny
    named = tuple(str(file) for file in (home / "actum.db", open_file))
    assert all(os.path.isfile(path) for path in named)
    capture = run(bound(replace(plan, output_files=named)), lambda _event: None)
    assert [(it.path, it.content) for it in capture.collected] == [
        ("actum.toml", open_file.read_bytes())
    ]
    assert [(it.path, it.reason) for it in capture.not_collected] == [(named[0], "denied")]
