"""The tool's own root file system: built by the init, from nothing, out of detached mounts.

Only three kinds of thing become visible: the system's programs and libraries (read-only), the
host paths the policy grants (at their own paths), and private scratch that dies with the sandbox.
A host path is opened once without following any symlink, compared with the file that the policy
judged, and that very object is what gets mounted.
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
    """A granted path is no longer the file that was judged."""


class CannotMap(Exception):
    """A writable path lies on a file system without idmapped mounts."""


def write_template(folder: str, uid: int, gid: int) -> None:
    """What every sandbox has in common, made once by the spawner in its own mount namespace."""
    kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=8m")
    etc = f"{folder}/etc"
    os.mkdir(etc)
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
    for program in ("snippet.py", "session.py"):
        beside = os.path.join(os.path.dirname(__file__), program)
        _copy(beside, f"{etc}/actum/{program}")
    for name in _ETC_FOLDERS:
        if os.path.isdir(f"/etc/{name}") and not os.path.islink(f"/etc/{name}"):
            os.mkdir(f"{etc}/{name}")
            _attach(_tree_of(f"/etc/{name}", _READ_ONLY), f"{etc}/{name}")
    dev = f"{folder}/dev"
    os.mkdir(dev)
    for name in _DEVICES:
        os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        _attach(_tree_of(f"/dev/{name}", kernel.MOUNT_ATTR_NOSUID), f"{dev}/{name}")
    for link, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{dev}/{link}")
    os.mkdir(f"{dev}/shm")
    os.mkdir(f"{folder}/nothing", 0o000)
    os.close(os.open(f"{folder}/no-file", os.O_CREAT | os.O_WRONLY, 0o000))


def _tree_of(path: str, attributes: int) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    tree = kernel.clone_tree(descriptor)
    os.close(descriptor)
    kernel.mount_setattr(tree, attributes)
    return tree


def _attach(tree: int, target: str) -> None:
    kernel.move_mount(tree, target)
    os.close(tree)


def open_grants(request: Request, idmap: int) -> list[tuple[str, int]]:
    """(target, detached tree) for every granted path, parents before children."""
    trees = []
    for grant in sorted(request["grants"], key=lambda grant: grant["path"].count("/")):
        descriptor = kernel.open_exact(grant["path"], os.O_PATH)
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != (grant["device"], grant["inode"]):
            raise PathChanged(grant["path"])
        tree = kernel.clone_tree(descriptor)
        os.close(descriptor)
        kernel.mount_setattr(tree, _WRITABLE if grant["write"] else _READ_ONLY)
        if idmap >= 0:
            try:
                kernel.mount_setattr(tree, kernel.MOUNT_ATTR_IDMAP, userns=idmap)
            except OSError as error:
                # Read-only, the mapping is a convenience (the caller's 0600 files become
                # readable); for writing, files would come out owned by a stranger.
                if grant["write"]:
                    raise CannotMap(f"{grant['path']}: {error.strerror}") from error
        trees.append((grant["path"], tree))
    return trees


def prepare(template: str) -> str:
    """All of a root that does not depend on the order; a warm sandbox has it before it is asked."""
    root = f"{template}/root"
    kernel.mount("tmpfs", root, "tmpfs", _MOUNT_FLAGS, "mode=755,size=4m,nr_inodes=4096")
    for name in ("usr", "etc", "dev", "proc", "tmp", "var", "run", "artifacts"):
        os.mkdir(f"{root}/{name}")
    os.symlink("/tmp", f"{root}/var/tmp")
    _attach(_tree_of("/usr", _READ_ONLY), f"{root}/usr")
    for name in _SYSTEM_LINKS:
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.isdir(f"/{name}"):
            os.mkdir(f"{root}/{name}")
            _attach(_tree_of(f"/{name}", _READ_ONLY), f"{root}/{name}")
    _attach(_tree_of(f"{template}/etc", _READ_ONLY), f"{root}/etc")
    # Devices stay devices: MOUNT_ATTR_NODEV would make /dev/null unopenable. Read-only they can be
    # written all the same; the folder, which is every sandbox's, cannot: an ordinary user owns it.
    read_only = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_RDONLY
    _attach(_tree_of(f"{template}/dev", read_only), f"{root}/dev")
    for name, mode, flags in _SCRATCH:
        kernel.mount("tmpfs", f"{root}/{name}", "tmpfs", flags, f"mode={mode},size=1m,nr_inodes=64")
    # Mounted while a fully visible /proc still exists: in a user namespace the kernel insists.
    kernel.mount(
        "proc",
        f"{root}/proc",
        "proc",
        _MOUNT_FLAGS | kernel.MS_NOEXEC | kernel.MS_RDONLY,
        "hidepid=invisible",
    )
    return root


def furnish(root: str, request: Request, template: str, idmap: int) -> None:
    """What this one order adds: sizes, files of its own, granted paths, and what covers them."""
    for name, _mode, flags in _SCRATCH:
        size, inodes = request["scratch_bytes"], SCRATCH_INODES
        if f"/{name}" == ARTIFACTS:
            size, inodes = request["artifacts_bytes"], ARTIFACT_INODES
        kernel.mount(
            "", f"{root}/{name}", "", flags | kernel.MS_REMOUNT, f"size={size},nr_inodes={inodes}"
        )
    # Before the grants, in our own tmpfs; which is read-only as a whole once it is entered.
    _provide(root, request["provided"])
    grants = open_grants(request, idmap)
    missing = any(
        path.startswith("/etc/") and not os.path.lexists(root + path) for path, _ in grants
    )
    if missing:
        _own_etc(root, template)
    attached: list[str] = []
    for path, tree in grants:
        # Below a granted directory nothing is made: the path exists there, it was resolved on the
        # host. If it is gone by now, a tool that runs beside us may have put a link in its way.
        if not _is_below(path, attached):
            _make_mount_point(root, path, tree)
        _attach_inside(root, path, tree)
        attached.append(path)
    if missing:
        _close_etc(root)
    # After the grants: an approved /etc of the host must not bring the host's names back.
    for name, text in request["etc"].items():
        _own_file(root, name, text)
    for path in _ways_to_covered(request):
        _pin(root, path)
    for path in request["protect"]:
        _protect(root, path)
    for path in request["deny"]:
        _hide(root, path, template)


def _provide(root: str, files: dict[str, str]) -> None:
    """The files that an adapter brings along: readable by the tool, writable by nobody."""
    if not files:
        return
    size = sum(map(len, files.values()))
    if size > _PROVIDED_AT_EASE:
        kernel.mount(
            "", root, "", _MOUNT_FLAGS | kernel.MS_REMOUNT, f"size={2 * size + _PROVIDED_AT_EASE}"
        )
    folder = f"{root}{PROVIDED}"
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


def _own_file(root: str, name: str, text: str) -> None:
    """A file of this sandbox alone, over the one of that name in /etc if there is one."""
    own = f"{root}/run/{name}"
    with open(own, "x") as file:  # never through a link, should /run be the host's
        file.write(text)
    if os.path.isfile(f"{root}/etc/{name}") and not os.path.islink(f"{root}/etc/{name}"):
        _attach_inside(root, f"/etc/{name}", _tree_of(own, _READ_ONLY))


def _own_etc(root: str, template: str) -> None:
    """A copy of the common /etc in which mount points can be made for this sandbox alone."""
    source, target = f"{template}/etc", f"{root}/etc"
    kernel.mount("tmpfs", target, "tmpfs", _MOUNT_FLAGS, "mode=755,size=4m,nr_inodes=1024")
    for name in os.listdir(source):
        if os.path.isdir(f"{source}/{name}"):
            os.mkdir(f"{target}/{name}")
            _attach(_tree_of(f"{source}/{name}", _READ_ONLY), f"{target}/{name}")
        else:
            _copy(f"{source}/{name}", f"{target}/{name}")


def _close_etc(root: str) -> None:
    etc = os.open(f"{root}/etc", os.O_PATH | os.O_CLOEXEC)
    kernel.mount_setattr(etc, _READ_ONLY, recursive=False)
    os.close(etc)


def _is_below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _make_mount_point(root: str, path: str, tree: int) -> None:
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


def _pin(root: str, path: str) -> None:
    """Mount a folder over itself. A mount point keeps its name, so what is covered below it by
    name is covered the next time as well."""
    target = _open_inside(root, path)
    tree = kernel.clone_tree(target)
    kernel.move_mount_onto(tree, target)
    os.close(target)
    os.close(tree)


def _open_inside(root: str, path: str) -> int:
    anchor = os.open(root, os.O_PATH | os.O_CLOEXEC)
    resolve = kernel.RESOLVE_IN_ROOT | kernel.RESOLVE_NO_SYMLINKS
    try:
        return kernel.openat2(anchor, path, os.O_PATH, resolve)
    finally:
        os.close(anchor)


def _attach_inside(root: str, path: str, tree: int) -> None:
    target = _open_inside(root, path)
    kernel.move_mount_onto(tree, target)
    os.close(target)
    os.close(tree)


def _protect(root: str, path: str) -> None:
    """Mount `path` read-only over itself."""
    target = _open_inside(root, path)
    tree = kernel.clone_tree(target)
    kernel.mount_setattr(tree, _READ_ONLY)
    kernel.move_mount_onto(tree, target)
    os.close(target)
    os.close(tree)


def _hide(root: str, path: str, template: str) -> None:
    """Cover `path` with an empty thing of the same kind that nobody may open."""
    try:
        target = _open_inside(root, path)
    except FileNotFoundError:
        return  # not visible inside, so there is nothing to hide
    folder = stat.S_ISDIR(os.fstat(target).st_mode)
    tree = _tree_of(f"{template}/{'nothing' if folder else 'no-file'}", _READ_ONLY)
    kernel.move_mount_onto(tree, target)
    os.close(target)
    os.close(tree)


def enter(root: str, working_directory: str) -> None:
    """Make `root` the root, drop the host's, and seal the top level."""
    kernel.mount("", root, "", kernel.MS_REC | kernel.MS_PRIVATE)
    os.chdir(root)
    kernel.pivot_root(".", ".")
    kernel.umount_detach(".")
    os.chdir("/")
    top = os.open("/", os.O_PATH | os.O_CLOEXEC)
    kernel.mount_setattr(top, _READ_ONLY, recursive=False)
    os.close(top)
    os.chdir(working_directory)


def _copy(source: str, target: str) -> None:
    """A small file. The standard `shutil` brings three compressors along, at every start."""
    with open(source, "rb") as whole, open(target, "wb") as copy:
        copy.write(whole.read())
