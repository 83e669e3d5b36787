"""Writes an image: contents first, under numbers; their names last, when every digest held.

While archives are read, a file's content goes to a numbered file of a flat folder, and no name of
the archive is used. After the last digest was compared, the folders of the tree are made, the
numbered files are renamed into them, and the symbolic links are made last of all: while anything
is written, the tree holds no link that a path could lead through. Each folder is opened by openat2
below the image's own (RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV) all the same.

Owners, modes, devices and extended attributes of the archive are not written: each file belongs to
the caller, is readable by all, and executable by all if it was by anyone.
"""

from __future__ import annotations

import os
from typing import Self

from actum import kernel
from actum.images.bounded_stream import BoundedStream
from actum.images.image_bounds import Bounds
from actum.images.layer_tree import LayerTree, Node
from actum.images.tar_reader import Kind, Member, members

_CHUNK = 1 << 18
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
#: Folders that stay open while names are written.
_MOST_OPEN = 64


class Unpacking:
    """One image on its way into the folders `contents` and `root`, both empty and open."""

    def __init__(self, contents: int, root: int, bounds: Bounds) -> None:
        self.tree = LayerTree(bounds)
        self._contents, self._root, self._bounds = contents, root, bounds
        self._next = self._layer = 0

    def add_layer(self, stream: BoundedStream) -> tuple[str, str]:
        """Read one layer. Returns the digests of its bytes and of its content, to be compared."""
        self.tree.begin(self._layer)
        self._layer += 1
        for member in members(stream, self._bounds):
            content = -1
            if member.kind is Kind.FILE:
                content, self._next = self._next, self._next + 1
                self._write(content, member, stream)
            self.tree.add(member, content)
        return stream.finish()

    def _write(self, number: int, member: Member, stream: BoundedStream) -> None:
        size = member.size
        file = os.open(str(number), _NEW, 0o600, dir_fd=self._contents)
        try:
            while size:
                part = stream.exactly(min(size, _CHUNK))
                size -= len(part)
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(file, rest) :]
            os.fchmod(file, 0o755 if member.mode & 0o111 else 0o644)
            os.utime(file, (member.mtime, member.mtime))
        finally:
            os.close(file)

    def place(self) -> tuple[int, int]:
        """Give every content its names. The number of names, and their bytes."""
        placed: dict[int, tuple[bytes, bytes]] = {}
        links: list[tuple[bytes, bytes, Node]] = []
        names = size = 0
        with _Folders(self._root) as folders:
            for folder, name, node in self.tree.walk():
                names += 1
                if node.names is not None:
                    os.mkdir(name, 0o700, dir_fd=folders.at(folder))
                elif node.target is not None:
                    links.append((folder, name, node))
                else:
                    size += 0 if node.content in placed else node.size
                    self._name(node, folder, name, placed, folders)
            for folder, name, node in links:
                assert node.target is not None  # noqa: S101 -- that made it a link
                os.symlink(node.target, name, dir_fd=folders.at(folder))
            # Last: the mode of the umask may not be enough, and 0755 admits no other writer.
            for folder, name, node in self.tree.walk():
                if node.names is not None:
                    os.fchmod(folders.at(folder + b"/" + name if folder else name), 0o755)
            os.fchmod(self._root, 0o755)
        return names, size

    def _name(
        self,
        node: Node,
        folder: bytes,
        name: bytes,
        placed: dict[int, tuple[bytes, bytes]],
        folders: _Folders,
    ) -> None:
        first = placed.get(node.content)
        target = folders.at(folder)
        if first is None:
            number = str(node.content)
            os.rename(number, name, src_dir_fd=self._contents, dst_dir_fd=target)
            placed[node.content] = folder, name
            return
        source = folders.at(first[0])
        os.link(first[1], name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)


class _Folders:
    """Open folders below a root, by path; the ones used last stay open."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._open: dict[bytes, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def at(self, path: bytes) -> int:
        if not path:
            return self._root
        found = self._open.pop(path, None)
        if found is None:
            if len(self._open) >= _MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            found = kernel.open_within(self._root, path, _FOLDER)
        self._open[path] = found  # last: a hard link needs two at once
        return found
