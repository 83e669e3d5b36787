"""The process that starts one engine, in namespaces of its own, and clears up after it.

    python -m engines.keeper KIND FOLDER OWNER

It prints one line: `ready`, or why there is no engine. It ends the engine when the process OWNER
ends, or on SIGTERM. On SIGHUP it starts the daemon again, for tests that killed it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from engines import client, kinds, remains

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19
_PR_SET_CHILD_SUBREAPER = 36
_START_S = 40

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    kind, folder, owner = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    # Shims and monitors leave their parent; with this they become children of the keeper.
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
    try:
        owner_ended = os.pidfd_open(owner)
    except ProcessLookupError:
        remains.clear(kind, folder)
        return 1
    asked, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they end first
    try:
        _own_namespaces(kind, folder)
        daemon = _start(kind, folder)
        print(_wait(kind, folder, daemon) or "ready", flush=True)
        while True:
            ready, _, _ = select.select([owner_ended, asked], [], [])
            signals = os.read(asked, 64) if asked in ready else b""
            if owner_ended in ready or signal.SIGTERM in signals:
                break
            if signal.SIGHUP in signals:
                daemon.kill()
                daemon.wait()
                daemon = _start(kind, folder)
            # A monitor that has ended must not look alive to the engine, which tests its number.
            daemon.poll()
            remains.collect_ended()
    finally:
        remains.clear(kind, folder)
    return 0


def _own_namespaces(kind: str, folder: Path) -> None:
    _checked(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET), "unshare")
    _mount("", "/", "", _MS_REC | _MS_SLAVE)
    environment = {"PATH": kinds.PATH}
    # An address beside the loopback's, as every host has one: a container that shares this network
    # can be told from one that has its own.
    for words in (["link", "set", "lo", "up"], ["addr", "add", "10.71.83.1/32", "dev", "lo"]):
        subprocess.run(["ip", *words], check=True, env=environment)
    _own_run(folder)
    _mount("tmpfs", "/dev/shm", "tmpfs", 0)  # Podman keeps its locks there
    unified = Path("/sys/fs/cgroup/unified")
    if kind == "podman" and unified.is_dir():
        _mount("tmpfs", str(unified), "tmpfs", 0)  # crun refuses a host with both versions


def _own_run(folder: Path) -> None:
    """A /run with what the host's has now, except for the folders that engines write to."""
    aside = folder / "run"
    aside.mkdir()
    _mount("/run", str(aside), "", _MS_BIND | _MS_REC)
    _mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
    for entry in aside.iterdir():
        target = Path("/run") / entry.name
        if entry.name in kinds.OWN_RUN:
            continue
        if entry.is_symlink():
            target.symlink_to(os.readlink(entry))
        elif entry.is_dir():
            target.mkdir()
            _mount(str(entry), str(target), "", _MS_BIND | _MS_REC)
        elif entry.is_file() or entry.is_socket():
            target.touch()
            _mount(str(entry), str(target), "", _MS_BIND)
    _checked(_libc.umount2(os.fsencode(aside), 2), "umount")  # MNT_DETACH
    aside.rmdir()
    (Path("/run") / remains.MARKER).write_text(str(folder))


def _start(kind: str, folder: Path) -> subprocess.Popen[bytes]:
    kinds.socket_of(folder).unlink(missing_ok=True)
    # A daemon that was killed leaves its pidfile, and takes another process for itself.
    (folder / "pid").unlink(missing_ok=True)
    with (folder / "log").open("ab") as log:
        daemon = subprocess.Popen(
            kinds.command(kind, folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=kinds.environment(folder),
            cwd=folder,
        )
    (folder / "daemon.new").write_text(str(daemon.pid))
    (folder / "daemon.new").rename(folder / "daemon")  # readers see one number or the other
    return daemon


def _wait(kind: str, folder: Path, daemon: subprocess.Popen[bytes]) -> str:
    """Until it answers. Otherwise why it does not."""
    until = time.monotonic() + _START_S
    while not client.answers(kinds.socket_of(folder)):
        if daemon.poll() is not None or time.monotonic() > until:
            said = (folder / "log").read_text(errors="replace").strip()
            how = "ended" if daemon.poll() is not None else f"did not answer in {_START_S} s"
            return f"{kind} {how}: {' | '.join(said.splitlines()[-3:])[-600:]}"
        time.sleep(0.02)
    return ""


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _checked(result, f"mount on {target}")


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    raise SystemExit(main())
