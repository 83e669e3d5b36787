"""The template of every sandbox's root, made once by the spawner.

The system's programs and libraries, an /etc of our own and a few devices, all read-only. Each
member builds its own root from it, with its own grants (`jail/root.c`).
"""

from __future__ import annotations

import os

from actum import kernel
from actum.sandbox import proc_files

SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_ETC_FILES = (
    "ld.so.cache",
    "ld.so.conf",
    "mime.types",
    "protocols",
    "services",
    "os-release",
    "debian_version",
    "gai.conf",
    "host.conf",
    "magic",
)
_ETC_FOLDERS = (
    "ssl",
    "ca-certificates",
    "alternatives",
    "ld.so.conf.d",
    "fonts",
    "terminfo",
    "perl",
    "python3",
    "python3.11",
)
#: Of TEST-NET-1, without a route: the kernel counts the queries of a tool that has no network.
_NO_ROUTE = "192.0.2.1"
#: Path inside every sandbox of the program that runs Python snippets.
SNIPPET = "/etc/actum/snippet.py"
#: The program of every init, only in the template; unlinked as soon as it is open.
JAIL = "/jail"
_READ_ONLY = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_MOUNT_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV


def make_template(folder: str, uid: int, gid: int, init: bytes) -> None:
    """Make the template in the spawner's own mount namespace, and make it the only content of that
    namespace. `init` is the program of every init."""
    kernel.mount("tmpfs", folder, "tmpfs", _MOUNT_FLAGS, "mode=755,size=8m")
    for name in ("usr", "etc", "dev", "proc", "new"):
        os.mkdir(f"{folder}/{name}")
    _attach(_tree_of("/usr", _READ_ONLY), f"{folder}/usr")
    for name in SYSTEM_LINKS:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{folder}/{name}")
        elif os.path.isdir(f"/{name}"):
            os.mkdir(f"{folder}/{name}")
            _attach(_tree_of(f"/{name}", _READ_ONLY), f"{folder}/{name}")
    _write_etc(f"{folder}/etc", uid, gid)
    _write_dev(f"{folder}/dev")
    with open(f"{folder}{JAIL}", "wb") as program:
        program.write(init)
    os.chmod(f"{folder}{JAIL}", 0o555)  # noqa: S103 -- a program
    _write_covers(f"{folder}/covers")
    # In a user namespace a new /proc can be mounted only where a full one is visible.
    _attach(_tree_of("/proc", 0), f"{folder}/proc")
    _turn_to(folder)


def _write_etc(etc: str, uid: int, gid: int) -> None:
    for name in write_etc(etc, uid, gid):
        _attach(_tree_of(f"/etc/{name}", _READ_ONLY), f"{etc}/{name}")
    _attach(_tree_of(etc, _READ_ONLY), etc)


def write_etc(etc: str, uid: int, gid: int) -> list[str]:
    """Write an /etc of our own into a folder. Returns the names of empty folders in it, on which
    the host's own are to be mounted."""
    texts = {
        "passwd": f"root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
        f"tool:x:{uid}:{gid}:tool:/tmp:/bin/sh\n",
        "group": f"root:x:0:\ntool:x:{gid}:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "hostname": "actum\n",
        "resolv.conf": f"nameserver {_NO_ROUTE}\noptions timeout:1 attempts:1\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "localtime": "",
    }
    for name, text in texts.items():
        with open(f"{etc}/{name}", "w") as file:
            file.write(text)
    if os.path.exists("/usr/share/zoneinfo/UTC"):
        _copy("/usr/share/zoneinfo/UTC", f"{etc}/localtime")
    for name in _ETC_FILES:
        if os.path.isfile(f"/etc/{name}"):
            _copy(f"/etc/{name}", f"{etc}/{name}")
    os.mkdir(f"{etc}/actum")
    for program in ("snippet", "session", "value", "working_files"):
        _copy(_beside(f"{program}_program.py"), f"{etc}/actum/{program}.py")
    folders = [
        name
        for name in _ETC_FOLDERS
        if os.path.isdir(f"/etc/{name}") and not os.path.islink(f"/etc/{name}")
    ]
    for name in folders:
        os.mkdir(f"{etc}/{name}")
    return folders


def _write_dev(dev: str) -> None:
    for name in _DEVICES:
        os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        _attach(_tree_of(f"/dev/{name}", kernel.MOUNT_ATTR_NOSUID), f"{dev}/{name}")
    for link, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{dev}/{link}")
    os.mkdir(f"{dev}/shm")
    # Without MOUNT_ATTR_NODEV, which would make /dev/null unopenable. A read-only mount does not
    # prevent writes to devices; it protects the folder, which all sandboxes share and an ordinary
    # user owns.
    _attach(_tree_of(dev, kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_RDONLY), dev)


def _write_covers(covers: str) -> None:
    """The covers of the kernel's own files in a member's /proc (`jail/proc.c`)."""
    os.mkdir(covers)
    os.mkdir(f"{covers}/nothing", 0o000)
    os.close(os.open(f"{covers}/no-file", os.O_CREAT | os.O_WRONLY, 0o000))
    for name, text in proc_files.texts().items():
        path = f"{covers}/files/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o444)
    # Each bind mount of one of these keeps the attributes. Otherwise a file's owner, as an ordinary
    # user's tool is, could change its mode.
    _attach(_tree_of(covers, _READ_ONLY), covers)


def _turn_to(folder: str) -> None:
    """Make `folder` the root and detach the old one."""
    os.chdir(folder)
    kernel.pivot_root(".", ".")
    kernel.umount_detach(".")
    os.chdir("/")


def _tree_of(path: str, attributes: int) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    tree = kernel.clone_tree(descriptor)
    os.close(descriptor)
    kernel.mount_setattr(tree, attributes)
    return tree


def _attach(tree: int, target: str) -> None:
    kernel.move_mount(tree, target)
    os.close(tree)


def _beside(name: str) -> str:
    return os.path.join(os.path.dirname(__file__), name)


def _copy(source: str, target: str) -> None:
    """Copy a small file. The standard `shutil` would import three compressors at every start."""
    with open(source, "rb") as whole, open(target, "wb") as copy:
        copy.write(whole.read())
