"""The tree of an image, in memory: layers are applied here, before any of their names is on a disk.

A symbolic link is a leaf with a text; a path that leads through one is resolved in this tree, as
in a chroot, so it cannot leave it. A hard link is a second name of one node. A whiteout removes
nodes of lower layers. Contents are in numbered files elsewhere (`unpacking`).
"""

from __future__ import annotations

from collections.abc import Iterator

from actum.images.image_bounds import Bounds, invalid, shown, too_large
from actum.images.tar_reader import Kind, Member

_MOST_LINKS = 40
_NAME_BYTES = 255
_TARGET_BYTES = 4_000
_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_RESERVED = b".wh..wh."


class Node:
    """A folder (`names`), a symbolic link (`target`), or a file (`content` is its number)."""

    __slots__ = ("content", "layer", "names", "size", "target")

    def __init__(self, layer: int) -> None:
        self.layer = layer
        self.names: dict[bytes, Node] | None = None
        self.target: bytes | None = None
        self.content = -1
        self.size = 0


class LayerTree:
    """One image, layer by layer."""

    def __init__(self, bounds: Bounds) -> None:
        self.root = _folder(0)
        self.masked = 0  #: files whose setuid, setgid or sticky bit was removed
        self.left_out = 0  #: devices, fifos and sockets
        self._bounds = bounds
        self._layer = 0
        self._entries = self._link_steps = 0
        #: Folders without a name of a lower layer, by identity; kept, so that none is reused.
        self._pruned: dict[int, dict[bytes, Node]] = {}

    def begin(self, layer: int) -> None:
        self._layer = layer
        self._pruned.clear()

    def add(self, member: Member, content: int) -> None:
        """Apply one entry. A file's content has this number."""
        self._count()
        steps = self._steps(member.name)
        if not steps:
            if member.kind is not Kind.FOLDER:
                raise invalid(f"its root is a {member.kind.value}")
            return
        *above, name = steps
        if name.startswith(_WHITEOUT):
            self._white_out(above, name)
            return
        if member.kind is Kind.SPECIAL:
            self.left_out += 1
            self._drop(above, name)
            return
        names = self._names(above)
        if member.kind is Kind.FOLDER:
            self._masks(member, 0o6000)
            known = names.get(name)
            if known is None or known.names is None:
                names[name] = _folder(self._layer)
            else:
                known.layer = self._layer
            return
        names[name] = self._leaf(member, content)

    def _leaf(self, member: Member, content: int) -> Node:
        if member.kind is Kind.SAME:
            return self._same(member)
        node = Node(self._layer)
        if member.kind is Kind.LINK:
            if not 0 < len(member.target) <= _TARGET_BYTES or b"\0" in member.target:
                raise invalid(f"the symbolic link {shown(member.name)} has no usable target")
            node.target = member.target
            return node
        self._masks(member, 0o7000)
        node.content, node.size = content, member.size
        return node

    def _masks(self, member: Member, bits: int) -> None:
        self.masked += bool(member.mode & bits)

    def _same(self, member: Member) -> Node:
        *above, name = self._steps(member.target) or [b""]
        folder = self._find(above)
        node = folder.get(name) if folder is not None else None
        if node is None or node.names is not None:
            what = "a folder" if node is not None else "nothing in the image"
            raise invalid(
                f"{shown(member.name)} is a hard link to {shown(member.target)}, which is {what}"
            )
        # Of this layer, whichever layer has the first name: a whiteout may take one of them. The
        # number of the content makes both one file.
        copy = Node(self._layer)
        copy.target, copy.content, copy.size = node.target, node.content, node.size
        return copy

    def _white_out(self, above: list[bytes], name: bytes) -> None:
        if name == _OPAQUE:
            folder = self._find(above)
            if folder is not None:
                self._prune(folder)
            return
        if name.startswith(_RESERVED):
            return  # records of the union file system that wrote the layer
        hidden = name[len(_WHITEOUT) :]
        if hidden in (b"", b".", b".."):
            raise invalid(f"it removes {shown(hidden)!r} of a folder, which is no name in it")
        self._drop(above, hidden)

    def _drop(self, above: list[bytes], name: bytes) -> None:
        """Remove a name of lower layers; what this layer has added stays."""
        folder = self._find(above)
        node = folder.get(name) if folder is not None else None
        if folder is None or node is None:
            return
        if node.names is None:
            if node.layer < self._layer:
                del folder[name]
            return
        self._prune(node.names)
        if not node.names and node.layer < self._layer:
            del folder[name]

    def _prune(self, names: dict[bytes, Node]) -> None:
        # Not recursive: a layer can be deeper than the interpreter's stack. Once for each folder in
        # a layer, which can repeat itself: no name of a lower layer comes back.
        if id(names) in self._pruned:
            return
        found, waiting = [names], [names]
        while waiting:
            for node in waiting.pop().values():
                if node.names is not None and id(node.names) not in self._pruned:
                    found.append(node.names)
                    waiting.append(node.names)
        for each in reversed(found):  # what is below before what is above
            for name, node in list(each.items()):
                if node.layer < self._layer and not node.names:
                    del each[name]
            self._pruned[id(each)] = each

    # -- paths ---------------------------------------------------------------------------------

    def _steps(self, path: bytes) -> list[bytes]:
        if b"\0" in path:
            raise invalid(f"the name {shown(path)} has a NUL")
        if len(path) > self._bounds.path_bytes:
            raise too_large(f"the path {shown(path)} is longer than {self._bounds.path_bytes}")
        steps = [step for step in path.split(b"/") if step not in (b"", b".")]
        for step in steps:
            if step == b"..":
                raise invalid(f"the path {shown(path)} has a `..`")
            if len(step) > _NAME_BYTES:
                raise too_large(f"the name {shown(step)} is longer than {_NAME_BYTES} bytes")
        if len(steps) > self._bounds.depth:
            raise too_large(f"{shown(path)} is deeper than {self._bounds.depth} folders")
        return steps

    def _find(self, path: list[bytes]) -> dict[bytes, Node] | None:
        """The names of a folder; ``None`` if there is none."""
        return self._walk(path, make=False)

    def _names(self, path: list[bytes]) -> dict[bytes, Node]:
        """The names of a folder, which is made if there is none."""
        found = self._walk(path, make=True)
        if found is None:
            raise invalid(f"{shown(b'/'.join(path))} is a file, and a name in it is another entry")
        return found

    def _walk(self, path: list[bytes], *, make: bool) -> dict[bytes, Node] | None:
        """Through links, in this tree: `..` of the root is the root."""
        trail = [self.root]
        waiting, links = path[::-1], 0
        while waiting:
            step = waiting.pop()
            if step == b"..":
                if len(trail) > 1:
                    trail.pop()
                continue
            names = trail[-1].names
            assert names is not None  # noqa: S101 -- a trail holds folders
            node = names.get(step)
            if node is None:
                if not make:
                    return None
                self._count()
                node = names[step] = _folder(self._layer)
            if node.target is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise invalid(f"{shown(b'/'.join(path))} leads through more than 40 links")
                if node.target.startswith(b"/"):
                    trail = trail[:1]
                steps = [each for each in node.target.split(b"/") if each not in (b"", b".")]
                if any(len(each) > _NAME_BYTES for each in steps):
                    raise invalid(f"{shown(b'/'.join(path))} leads to a name that is too long")
                self._link_steps += len(steps)
                if self._link_steps > self._bounds.link_steps:
                    raise too_large("its paths lead through too many links")
                waiting += steps[::-1]
                continue
            if node.names is None:
                return None
            trail.append(node)
            if len(trail) > self._bounds.depth:
                raise too_large(
                    f"{shown(b'/'.join(path))} is deeper than {self._bounds.depth} folders"
                )
        return trail[-1].names

    def _count(self) -> None:
        self._entries += 1
        if self._entries > self._bounds.entries:
            raise too_large(f"it has more than {self._bounds.entries} names")

    # -- the whole ---------------------------------------------------------------------------------

    def walk(self) -> Iterator[tuple[bytes, bytes, Node]]:
        """(path of its folder, name, node) of each name; a folder before its contents."""
        names = self.root.names
        assert names is not None  # noqa: S101 -- the root is a folder
        if len(names) > self._bounds.top_names:
            raise too_large(f"its root has more than {self._bounds.top_names} names")
        waiting: list[tuple[bytes, Node]] = [(b"", self.root)]
        while waiting:
            path, folder = waiting.pop()
            # A path through links can be longer than each of its parts.
            if len(path) > self._bounds.path_bytes:
                raise too_large(f"the path {shown(path)} is longer than {self._bounds.path_bytes}")
            for name, node in (folder.names or {}).items():
                yield path, name, node
                if node.names is not None:
                    waiting.append((b"%b/%b" % (path, name) if path else name, node))


def _folder(layer: int) -> Node:
    node = Node(layer)
    node.names = {}
    return node
