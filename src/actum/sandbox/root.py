"""The tool's own root file system: built by the init, from nothing, out of mounts.

Only three kinds of thing become visible: the system's programs and libraries (read-only), the
host paths the policy grants (at their own paths), and private scratch that dies with the sandbox.
Host paths arrive as detached mounts of what was judged (`trees`); all else is common to every
sandbox, so it is there before anybody asks, and shared by none: each has a root of its own in which
mount points are made, because a folder made in a file system that two can see would be a message.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import stat

from actum import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from actum.sandbox.wire import Request

_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
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
ARTIFACTS = "/artifacts"
#: Bytes of provided files (as base64) that the root's own size has room for.
_PROVIDED_AT_EASE = 1 << 20
#: As in `contract.call`, which is not to be loaded here.
PROVIDED = "/run/actum"
#: Where the program that runs Python snippets lies inside every sandbox.
SNIPPET = "/etc/actum/snippet.py"
#: What the tool's process is until it may start.
WAITER = "/etc/actum/waiter-x86_64"
#: In the member's own root, while nothing of a tool is there.
_REHEARSAL = "/run/rehearsal"
SCRATCH_INODES = 16_384
ARTIFACT_INODES = 1_024
_READ_ONLY = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_WRITABLE = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV

_MOUNT_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV
#: (name, mode, flags) of the private tmpfs mounts. Nobody may list the artifacts.
_SCRATCH = (
    ("tmp", "1777", _MOUNT_FLAGS),
    ("dev/shm", "1777", _MOUNT_FLAGS | kernel.MS_NOEXEC),
    ("artifacts", "1773", _MOUNT_FLAGS | kernel.MS_NOEXEC),
)


class PathChanged(Exception):
    """A path is no longer the file that was judged."""


def make_template(folder: str, uid: int, gid: int) -> None:
    """What every sandbox has in common, made once by the spawner in a mount namespace of its own,
    which is left with nothing else."""
    kernel.mount("tmpfs", folder, "tmpfs", _MOUNT_FLAGS, "mode=755,size=8m")
    for name in ("usr", "etc", "dev", "proc", "new"):
        os.mkdir(f"{folder}/{name}")
    _attach(tree_of("/usr", _READ_ONLY), f"{folder}/usr")
    for name in _SYSTEM_LINKS:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{folder}/{name}")
        elif os.path.isdir(f"/{name}"):
            os.mkdir(f"{folder}/{name}")
            _attach(tree_of(f"/{name}", _READ_ONLY), f"{folder}/{name}")
    _write_etc(f"{folder}/etc", uid, gid)
    _write_dev(f"{folder}/dev")
    # In a user namespace a new /proc can only be mounted where an unhindered one is visible.
    _attach(tree_of("/proc", 0), f"{folder}/proc")
    _turn_to(folder)


def _write_etc(etc: str, uid: int, gid: int) -> None:
    texts = {
        "passwd": f"root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
        f"tool:x:{uid}:{gid}:tool:/tmp:/bin/sh\n",
        "group": f"root:x:0:\ntool:x:{gid}:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "hostname": "actum\n",
        "resolv.conf": "",
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
    for program in ("snippet.py", "session.py", "waiter-x86_64"):
        beside = os.path.join(os.path.dirname(__file__), program)
        _copy(beside, f"{etc}/actum/{program}")
    os.chmod(f"{etc}/actum/waiter-x86_64", 0o755)  # noqa: S103 -- a program, on a read-only mount
    for name in _ETC_FOLDERS:
        if os.path.isdir(f"/etc/{name}") and not os.path.islink(f"/etc/{name}"):
            os.mkdir(f"{etc}/{name}")
            _attach(tree_of(f"/etc/{name}", _READ_ONLY), f"{etc}/{name}")
    _attach(tree_of(etc, _READ_ONLY), etc)


def _write_dev(dev: str) -> None:
    for name in _DEVICES:
        os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        _attach(tree_of(f"/dev/{name}", kernel.MOUNT_ATTR_NOSUID), f"{dev}/{name}")
    for link, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{dev}/{link}")
    os.mkdir(f"{dev}/shm")
    # Devices stay devices: MOUNT_ATTR_NODEV would make /dev/null unopenable. Read-only they can be
    # written all the same; the folder, which is every sandbox's, cannot: an ordinary user owns it.
    _attach(tree_of(dev, kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_RDONLY), dev)


def _turn_to(folder: str) -> None:
    """Make `folder` the root and let go of the one before."""
    os.chdir(folder)
    kernel.pivot_root(".", ".")
    kernel.umount_detach(".")
    os.chdir("/")


def tree_of(path: str, attributes: int) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    tree = kernel.clone_tree(descriptor)
    os.close(descriptor)
    kernel.mount_setattr(tree, attributes)
    return tree


def _attach(tree: int, target: str) -> None:
    kernel.move_mount(tree, target)
    os.close(tree)


class Root:
    """The root of one member, which it has entered."""

    def __init__(self, scratch_bytes: int, artifacts_bytes: int) -> None:
        """All of it that does not depend on the request."""
        # Of the template's copy that came with our mount namespace; from here on nobody's but ours.
        kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("tmpfs", "/new", "tmpfs", _MOUNT_FLAGS, "mode=755,size=4m,nr_inodes=4096")
        for name in ("usr", "etc", "dev", "proc", "tmp", "var", "run", "artifacts"):
            os.mkdir(f"/new/{name}")
        os.symlink("/tmp", "/new/var/tmp")
        for name in ("usr", "etc", "dev"):
            kernel.shift_mount(f"/{name}", f"/new/{name}")
        for name in _SYSTEM_LINKS:
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), f"/new/{name}")
            elif os.path.isdir(f"/{name}"):
                os.mkdir(f"/new/{name}")
                kernel.shift_mount(f"/{name}", f"/new/{name}")
        # What covers a path that is denied. Itself covered at once, and so in nobody's sight.
        os.mkdir("/new/artifacts/nothing", 0o000)
        os.close(os.open("/new/artifacts/no-file", os.O_CREAT | os.O_WRONLY, 0o000))
        self._nothing = os.open("/new/artifacts/nothing", os.O_PATH | os.O_CLOEXEC)
        self._no_file = os.open("/new/artifacts/no-file", os.O_PATH | os.O_CLOEXEC)
        self._scratch_bytes, self._artifacts_bytes = scratch_bytes, artifacts_bytes
        for name, mode, flags, size, inodes in self._scratch():
            options = f"mode={mode},size={size},nr_inodes={inodes}"
            kernel.mount("tmpfs", f"/new/{name}", "tmpfs", flags, options)
        # While the host's /proc is still visible: in a user namespace the kernel insists.
        kernel.mount(
            "proc",
            "/new/proc",
            "proc",
            _MOUNT_FLAGS | kernel.MS_NOEXEC | kernel.MS_RDONLY,
            "hidepid=invisible",
        )
        _turn_to("/new")

    def _scratch(self) -> list[tuple[str, str, int, int, int]]:
        """(name, mode, flags, bytes, inodes) of the private mounts."""
        rows = []
        for name, mode, flags in _SCRATCH:
            size, inodes = self._scratch_bytes, SCRATCH_INODES
            if f"/{name}" == ARTIFACTS:
                size, inodes = self._artifacts_bytes, ARTIFACT_INODES
            rows.append((name, mode, flags, size, inodes))
        return rows

    def furnish(self, request: Request, trees: list[int]) -> bool:
        """What this one request adds: sizes, files of its own, granted paths, and what covers them.

        `trees` are the granted paths, in the order of the request. True if /etc is another now.
        """
        wanted = (request["scratch_bytes"], request["artifacts_bytes"])
        if wanted != (self._scratch_bytes, self._artifacts_bytes):
            self._scratch_bytes, self._artifacts_bytes = wanted
            for name, _mode, flags, size, inodes in self._scratch():
                options = f"size={size},nr_inodes={inodes}"
                kernel.mount("", f"/{name}", "", flags | kernel.MS_REMOUNT, options)
        # Before the grants, in our own tmpfs; which is read-only as a whole in the end.
        _provide(request["provided"])
        paths = [grant["path"] for grant in request["grants"]]
        own_etc = any(path.startswith("/etc/") and not os.path.lexists(path) for path in paths)
        if own_etc:
            _own_etc()
        attached: list[str] = []
        for path, tree in zip(paths, trees, strict=True):
            # Below a granted directory nothing is made: the path exists there, it was resolved on
            # the host. If it is gone by now, a tool that runs beside us may have put a link in its
            # way.
            if not _is_below(path, attached):
                _make_mount_point(path, tree)
            _attach_inside(path, tree)
            attached.append(path)
        if own_etc:
            _make_read_only("/etc")
        # After the grants: an approved /etc of the host must not bring the host's names back.
        for name, text in request["etc"].items():
            _own_file(name, text)
        for path in _ways_to_covered(request):
            _pin(path)
        for path in request["protect"]:
            _protect(path)
        for path in request["deny"]:
            self._hide(path)
        _make_read_only("/")
        return own_etc

    def rehearse(self) -> None:
        """Go the way of a request once, with nothing, and leave no trace. What is written for the
        first time after a fork is copied first; that is done by now when a request comes."""
        place = f"{_REHEARSAL}/place"
        tree = kernel.clone_tree(self._nothing)
        _make_mount_point(place, tree)
        _attach_inside(place, tree)
        _protect(place)
        self._hide(place)
        for _ in range(3):
            kernel.umount_detach(place)
        os.rmdir(place)
        os.rmdir(_REHEARSAL)

    def _hide(self, path: str) -> None:
        """Cover `path` with an empty thing of the same kind that nobody may open."""
        try:
            target = _open_inside(path)
        except FileNotFoundError:
            return  # not visible inside, so there is nothing to hide
        folder = stat.S_ISDIR(os.fstat(target).st_mode)
        tree = kernel.clone_tree(self._nothing if folder else self._no_file)
        kernel.mount_setattr(tree, _READ_ONLY)
        kernel.move_mount_onto(tree, target)
        os.close(target)
        os.close(tree)


def _provide(files: dict[str, str]) -> None:
    """The files that an adapter brings along: readable by the tool, writable by nobody."""
    if not files:
        return
    size = sum(map(len, files.values()))
    if size > _PROVIDED_AT_EASE:
        kernel.mount(
            "", "/", "", _MOUNT_FLAGS | kernel.MS_REMOUNT, f"size={2 * size + _PROVIDED_AT_EASE}"
        )
    folder = PROVIDED
    made = {folder}
    os.mkdir(folder)
    for name, content in files.items():
        *parents, last = name.split("/")
        if {"", ".", ".."} & {*parents, last}:
            raise OSError(f"{name} is no file name")
        below = folder
        for parent in parents:
            below = f"{below}/{parent}"
            if below not in made:
                made.add(below)
                os.mkdir(below)
        with open(f"{below}/{last}", "xb") as file:
            file.write(binascii.a2b_base64(content))
        os.chmod(f"{below}/{last}", 0o555)  # noqa: S103 -- a compiled program is one of them
    for each in made:
        os.chmod(each, 0o555)  # noqa: S103 -- whatever the umask says


def _own_file(name: str, text: str) -> None:
    """A file of this sandbox alone, over the one of that name in /etc if there is one."""
    own = f"/run/{name}"
    with open(own, "x") as file:  # never through a link, should /run be the host's
        file.write(text)
    if os.path.isfile(f"/etc/{name}") and not os.path.islink(f"/etc/{name}"):
        _attach_inside(f"/etc/{name}", tree_of(own, _READ_ONLY))


def _own_etc() -> None:
    """A copy of the common /etc in which mount points can be made for this sandbox alone."""
    common = os.open("/etc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.mount("tmpfs", "/etc", "tmpfs", _MOUNT_FLAGS, "mode=755,size=4m,nr_inodes=1024")
    for name in os.listdir(common):
        found = os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=common)
        if stat.S_ISDIR(os.fstat(found).st_mode):
            os.mkdir(f"/etc/{name}")
            _attach(kernel.clone_tree(found), f"/etc/{name}")
        else:
            reading = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=common)
            with open(reading, "rb") as source, open(f"/etc/{name}", "wb") as target:
                target.write(source.read())
        os.close(found)
    os.close(common)


def _make_read_only(path: str) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    kernel.mount_setattr(place, _READ_ONLY, recursive=False)
    os.close(place)


def _is_below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _make_mount_point(path: str, tree: int, root: str = "/") -> None:
    """Create what is missing of `path`, inside our own tmpfs mounts and through no link."""
    *parents, last = path.strip("/").split("/")
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in parents:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        below = kernel.openat2(folder, name, os.O_PATH | os.O_DIRECTORY, kernel.RESOLVE_NO_SYMLINKS)
        os.close(folder)
        folder = below
    with contextlib.suppress(FileExistsError):
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.mkdir(last, dir_fd=folder)
        else:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(last, flags, 0o600, dir_fd=folder))
    os.close(folder)


def _ways_to_covered(request: Request) -> list[str]:
    """Folders that a tool could rename and that lead to what is covered; parents first."""
    writable = [grant["path"] for grant in request["grants"] if grant["write"]]
    found = set()
    for path in (*request["protect"], *request["deny"]):
        folder = os.path.dirname(path)
        while _is_below(folder, writable):
            found.add(folder)
            folder = os.path.dirname(folder)
    return sorted(found, key=lambda folder: folder.count("/"))


def _pin(path: str) -> None:
    """Mount a folder over itself. A mount point keeps its name, so what is covered below it by
    name is covered the next time as well."""
    target = _open_inside(path)
    tree = kernel.clone_tree(target)
    kernel.move_mount_onto(tree, target)
    os.close(target)
    os.close(tree)


def _open_inside(path: str) -> int:
    anchor = os.open("/", os.O_PATH | os.O_CLOEXEC)
    resolve = kernel.RESOLVE_IN_ROOT | kernel.RESOLVE_NO_SYMLINKS
    try:
        return kernel.openat2(anchor, path, os.O_PATH, resolve)
    finally:
        os.close(anchor)


def _attach_inside(path: str, tree: int) -> None:
    target = _open_inside(path)
    kernel.move_mount_onto(tree, target)
    os.close(target)
    os.close(tree)


def _protect(path: str) -> None:
    """Mount `path` read-only over itself."""
    target = _open_inside(path)
    tree = kernel.clone_tree(target)
    kernel.mount_setattr(tree, _READ_ONLY)
    kernel.move_mount_onto(tree, target)
    os.close(target)
    os.close(tree)


def _copy(source: str, target: str) -> None:
    """A small file. The standard `shutil` brings three compressors along, at every start."""
    with open(source, "rb") as whole, open(target, "wb") as copy:
        copy.write(whole.read())
