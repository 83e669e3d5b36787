"""A whole PC with Debian's own kernel 6.1, emulated: Landlock ABI 2, idmapped mounts on ext4 only.

Never KVM: where it is nested it may hang, and a test that depends on the host's CPU proves less.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

from . import packages
from .initrd import cpio, modules_in_order
from .machine import GUEST, Answer, NoAnswer, Processes, preparation

_MODULES = ("virtio_pci", "virtiofs", "virtio_blk", "ext4", "overlay")
_PARAMETERS = (
    *("console=ttyS0", "quiet", "panic=-1", "cgroup_no_v1=all", "mitigations=off"),
    # A clock that is a device's register stops both processors at each look at it.
    "tsc=reliable",
    # Code at one address in every process is translated once; pages are not cleared twice.
    *("norandmaps", "init_on_alloc=0"),
)
_DISK_BYTES = 64 << 20
_END = "\n--- exit code "


def run(command: list[str], *, deadline_s: float) -> Answer:
    kernel = packages.current_kernel("cloud-amd64")
    packages.unpack(kernel, "busybox-static")
    root = packages.unpack_with_dependencies("qemu-system-x86")
    release = kernel.removeprefix("linux-image-")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="actum-qemu-") as name, Processes(Path(name)) as host:
        folder = Path(name)
        until = began + deadline_s
        (folder / "initrd").write_bytes(_initrd(root, release, command))
        _make_disk(folder / "disk")
        libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
        environment = {
            "PATH": os.defpath,
            "LD_LIBRARY_PATH": f"{libraries}:{root / 'lib' / 'x86_64-linux-gnu'}",
            "QEMU_MODULE_DIR": str(libraries / "qemu"),
        }
        share = folder / "share.socket"
        host.start("virtiofsd", _virtiofsd(root, share), environment)
        host.wait_for_file(share, until)
        host.start("qemu", _qemu(root, release, folder, share), environment)
        host.wait(until)
        output, end, code = (folder / "answer").read_text(errors="replace").rpartition(_END)
        if not end:
            raise NoAnswer(host.logs())
        return Answer(code=int(code), output=output, seconds=time.monotonic() - began)


def _initrd(root: Path, release: str, command: list[str]) -> bytes:
    files = {
        "bin/busybox": (root / "bin" / "busybox").read_bytes(),
        "command": f"{shlex.join(command)}\n".encode(),
        "mounts.sh": preparation().encode(),
        "init": (GUEST / "initrd.sh").read_bytes(),
    }
    modules = modules_in_order(root / "lib" / "modules" / release, _MODULES)
    for number, module in enumerate(modules):
        files[f"modules/{number:02}-{module.name}"] = module.read_bytes()
    return cpio(files)


def _make_disk(path: Path) -> None:
    """For what needs a file system that can be idmapped by this kernel, as tmpfs cannot."""
    with open(path, "wb") as file:
        file.truncate(_DISK_BYTES)
    command = ["mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", str(path)]
    environment = {"PATH": f"{os.defpath}:/usr/sbin:/sbin"}
    subprocess.run(command, check=True, env=environment, timeout=30)


def _virtiofsd(root: Path, share: Path) -> list[str]:
    return [
        str(root / "usr" / "lib" / "qemu" / "virtiofsd"),
        f"--socket-path={share}",
        *("-o", "source=/,cache=always,sandbox=chroot"),
    ]


def _qemu(root: Path, release: str, folder: Path, share: Path) -> list[str]:
    return [
        str(root / "usr" / "bin" / "qemu-system-x86_64"),
        *(
            "-L",
            str(root / "usr" / "share" / "qemu"),
            "-L",
            str(root / "usr" / "share" / "seabios"),
        ),
        # Page tables of five levels are built and walked by the emulator: they cost a fifth.
        *("-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,-la57", "-smp", "2"),
        *("-m", "1024", "-object", "memory-backend-memfd,id=memory,size=1024M,share=on"),
        *("-numa", "node,memdev=memory"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-serial", "stdio", "-serial", f"file:{folder / 'answer'}"),
        *("-chardev", f"socket,id=share,path={share}"),
        *("-device", "vhost-user-fs-pci,chardev=share,tag=host"),
        *("-drive", f"if=virtio,format=raw,file={folder / 'disk'}"),
        *("-kernel", str(root / "boot" / f"vmlinuz-{release}")),
        *("-initrd", str(folder / "initrd")),
        *("-append", " ".join(_PARAMETERS)),
    ]
