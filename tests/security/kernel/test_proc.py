"""/proc shows a tool its own processes; of the kernel and the host it shows what we wrote."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import actum
from actum.sandbox import proc_files, spawner_client
from hostile.jail import Jail
from hostile.member import asked, carried_out, spawner

pytestmark = pytest.mark.sandbox

LINKS = {"mounts", "net", "self", "thread-self"}
MADE = {name.partition("/")[0] for name in proc_files.texts()}


def entries() -> list[str]:
    """What this kernel has at the top of /proc beside processes and links."""
    with os.scandir("/proc") as found:
        return sorted(
            each.name for each in found if not each.name.isdigit() and not each.is_symlink()
        )


def test_this_kernel_has_something_to_hide() -> None:
    assert len({*entries()} - MADE) > 20
    assert {*entries()} >= MADE


#: For each name: the file system that it is on, and what can be had of it.
_LOOK = """
import os, subprocess, sys
for name in sys.argv[1:]:
    path = f'/proc/{name}'
    kind = subprocess.run(['stat', '-f', '-c', '%T', path], capture_output=True, text=True).stdout
    try:
        if os.path.isdir(path): said = len(os.listdir(path))
        else: said = len(open(path, 'rb').read(64))
    except OSError as error: said = error.strerror
    print(name, kind.strip(), said)
"""


@pytest.mark.req("004-53")
def test_nothing_at_the_top_is_the_kernels_own(jail: Jail) -> None:
    names = entries()
    outside = jail.outside_python(_LOOK, *[name for name in names if name != "kmsg"])
    assert "interrupts proc 64" in outside.splitlines()
    said = dict(line.split(" ", 1) for line in jail.said(jail.python(_LOOK, *names)).splitlines())
    assert said.keys() == {*names}
    for name, (kind, found) in ((name, text.split(" ", 1)) for name, text in said.items()):
        assert kind == "tmpfs", name
        if name in MADE:
            assert int(found) > 0, name
        else:
            assert found == "Permission denied", name


@pytest.mark.req("004-53")
def test_no_other_name_leads_there(jail: Jail) -> None:
    script = """
cd /proc
for way in /proc/self/root/proc /proc/self/cwd /proc/thread-self/root/proc /dev/fd/../root/proc; do
    head -c 1 $way/interrupts 2>/dev/null && echo OPEN $way
    [ "$(head -c 4 $way/stat)" = "cpu " ] && grep -c . $way/sys/kernel/ostype
done
ls /proc/1/root /proc/1/cwd 2>/dev/null
true
"""
    assert jail.said(jail.sh(script)).split() == ["1"] * 4


@pytest.mark.req("004-53")
def test_the_covers_stay(jail: Jail) -> None:
    program = """
import os
for act in (lambda: os.chmod('/proc/no', 0o644), lambda: os.chmod('/proc/keys', 0o644),
            lambda: os.chmod('/proc/fs', 0o755), lambda: os.unlink('/proc/keys'),
            lambda: os.rename('/proc/stat', '/tmp/stat'), lambda: os.rmdir('/proc/fs'),
            lambda: open('/proc/stat', 'w'), lambda: open('/proc/sys/kernel/hostname', 'w'),
            lambda: open('/proc/sys/kernel/new', 'w'), lambda: os.utime('/proc/stat')):
    try: act(); print('DONE')
    except OSError as error: print(error.errno)
"""
    said = jail.said(jail.python(program)).split()
    assert said[0] == "2"  # the file that is not there
    assert len(said) == 10
    assert {*said} <= {"1", "2", "13", "16", "18", "30"}  # EPERM EACCES EBUSY EXDEV EROFS


def test_a_file_says_the_same_in_every_sandbox_and_nothing_of_the_host(jail: Jail) -> None:
    script = "cat /proc/meminfo /proc/stat /proc/uptime /proc/loadavg /proc/vmstat"
    first, second = (jail.said(jail.sh(f"{script}; sleep 0.03")) for _ in range(2))
    assert first == second
    assert jail.outside(f"{script}; sleep 0.03") != jail.outside(script)
    assert set(first.partition("cpu ")[2].splitlines()[0].split()) == {"0"}


def test_what_tells_of_the_tool_itself_is_there(jail: Jail) -> None:
    program = """
import os
print(len(os.listdir('/proc/self/fd')) > 2, 'Seccomp:\\t2' in open('/proc/self/status').read())
print('lo:' in open('/proc/net/dev').read(), '/proc ' in open('/proc/mounts').read())
print(sorted(name for name in os.listdir('/proc') if os.path.islink('/proc/' + name)))
print(open('/proc/self/cgroup').read().count('/') > 0, os.readlink('/proc/self/exe'))
"""
    assert jail.said(jail.python(program)).splitlines() == [
        "True True",
        "True True",
        str(sorted(LINKS)),
        f"True {Path('/usr/bin/python3').resolve()}",
    ]


#: Programs that look at the machine -> what they must say.
LOOKING = {
    "ps aux": "ps aux",
    "ps -ef --forest": "ps -ef",
    "free -m": "Mem:",
    "uptime": "load average: 0.00",
    "vmstat": "procs",
    "top -bn1": "Tasks:",
    "w -h; echo seen": "seen",
    "pgrep -x dash": "2",
    "/usr/sbin/sysctl kernel.ostype": "kernel.ostype = Linux",
    "nproc": str(len(os.sched_getaffinity(0))),
    "getconf _NPROCESSORS_ONLN": "",
    "grep -c ^processor /proc/cpuinfo": str(os.cpu_count()),
    "df -h /tmp": "tmpfs",
    "node -p 'os.cpus().length'": str(os.cpu_count()),
    "node -p 'os.freemem() > 0 && os.uptime() > 0'": "true",
    "python3 -c 'import os; print(os.sysconf(\"SC_PHYS_PAGES\") > 0, os.getloadavg())'": "True",
}


@pytest.mark.parametrize("script", LOOKING)
def test_programs_that_look_at_the_machine_work(jail: Jail, script: str) -> None:
    result = jail.sh(script)
    assert result.result is not None
    assert (result.result.exit_code, result.result.stderr) == (0, "")
    assert LOOKING[script] in result.result.stdout
    assert result.result.stdout


#: Templates that cannot serve -> (the module, what is added to it)
SPOILT = {
    "a file where the kernel has a directory": (
        "proc_files",
        "def texts():\n    return {'sys': 'no directory'}",
    ),
    "no covers at all": ("root", "def _write_covers(covers):\n    os.mkdir(covers)"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_where_something_cannot_be_covered_only_processes_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    name, addition = SPOILT[how]
    shutil.copytree(Path(actum.__file__).parent, tmp_path / "actum")
    tmp_path.chmod(0o755)
    spoilt = tmp_path / f"actum/sandbox/{name}.py"
    spoilt.write_text(f"{spoilt.read_text()}\n\n{addition}\n")
    script = "ls /proc; cat /proc/self/comm; ls -d /proc/keys"
    with spawner() as whole:
        report, listed = carried_out(whole, asked(script))
        assert report["kind"] == "ended"
        assert "interrupts" in listed.split()
    monkeypatch.setattr(spawner_client, "_SOURCE", str(tmp_path))
    with spawner() as lesser:
        report, listed = carried_out(lesser, asked(script))
    assert report["kind"] == "ended"
    assert {each for each in listed.split() if not each.isdigit()} == {"self", "thread-self", "cat"}
