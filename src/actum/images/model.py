"""An image that was added: what it is, and what it was made from."""

from __future__ import annotations

from actum.contract.image_reference import parse_reference
from actum.contract.model import Json
from actum.value import value


@value
class Image:
    """One unpacked image."""

    id: str  #: digest of its configuration
    digests: tuple[str, ...]  #: of its manifest and of the indexes that named it, if there were any
    names: tuple[str, ...]  #: that its archive gave it, with tags: for people
    platform: str
    layers: tuple[str, ...]  #: digest of the content of each
    files: int  #: names in its tree
    size_bytes: int
    masked: int  #: files and folders whose setuid, setgid or sticky bit was removed
    left_out: int  #: devices, fifos and sockets
    added_at: str
    folder: str  #: its tree on this host

    @property
    def reference(self) -> str:
        """What tool.yaml writes: a name with a digest if it has both, else its id."""
        for name in self.names:
            for digest in self.digests:
                pinned = f"{_without_tag(name)}@{digest}"
                try:
                    parse_reference(pinned)
                except ValueError:
                    continue
                return pinned
        return self.id

    def document(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "reference": self.reference,
            "digests": list(self.digests),
            "names": list(self.names),
            "platform": self.platform,
            "layers": list(self.layers),
            "files": self.files,
            "size_bytes": self.size_bytes,
            "masked": self.masked,
            "left_out": self.left_out,
            "added_at": self.added_at,
            "folder": self.folder,
        }


def _without_tag(name: str) -> str:
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition('@')[0].partition(':')[0]}"
