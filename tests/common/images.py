"""Images for tests: made from the host's own files, as archives of each form.

`host_rootfs` is a root file system of the host's programs and their libraries; `Layers` writes
archives entry by entry, hostile ones too.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

PROGRAMS = (
    *("sh", "cat", "echo", "ls", "true", "false", "sleep", "env", "id", "head", "wc", "stat"),
    *("mkdir", "touch", "rm", "kill", "readlink", "dd", "seq", "mknod", "ln", "cp", "chmod"),
    *("sort", "tr", "uname"),
)
_LIBRARY = re.compile(r"(?:=> )?(/[^ ]+) \(0x")


def host_programs(names: Iterable[str] = PROGRAMS, *, python: bool = False) -> dict[str, Path]:
    """Path inside -> file of the host, for these programs and what they are linked with."""
    found = {f"/usr/bin/{name}": _program(name) for name in names if _has(name)}
    if python:
        real = Path("/usr/bin/python3").resolve()
        found["/usr/bin/python3"] = real
        library = Path(f"/usr/lib/{real.name}")
        for path in sorted(library.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and "test" not in path.parts:
                found[str(path)] = path
    for program in [*found.values()]:
        if os.access(program, os.X_OK) or program.suffix == ".so":
            for library in _libraries(program):
                found[library] = Path(library).resolve()
    return found


def _has(name: str) -> bool:
    return shutil.which(name, path="/usr/bin:/bin:/usr/sbin") is not None


def _program(name: str) -> Path:
    for folder in ("/usr/bin", "/bin", "/usr/sbin"):
        if os.access(f"{folder}/{name}", os.X_OK):
            return Path(f"{folder}/{name}").resolve()
    raise FileNotFoundError(name)


def _libraries(program: Path) -> list[str]:
    listed = subprocess.run(["/usr/bin/ldd", program], capture_output=True, text=True, check=False)
    return [os.path.normpath(path) for path in _LIBRARY.findall(listed.stdout)]


def host_rootfs(file: Path, names: Iterable[str] = PROGRAMS, *, python: bool = False) -> Path:
    """A plain root file system archive, with a merged /usr as the host has it."""
    layer = Layer()
    for link in ("bin", "sbin", "lib", "lib64"):
        layer.link(link, f"usr/{link}")
        layer.folder(f"usr/{link}")
    layer.file("etc/os-release", b"ID=made\nNAME=Made\n")
    layer.file("etc/in-image", b"of the image\n")
    for inside, source in host_programs(names, python=python).items():
        layer.file(_merged(inside), source.read_bytes(), mode=source.stat().st_mode & 0o7777)
    file.write_bytes(layer.content())
    return file


def _merged(path: str) -> str:
    first = path.lstrip("/").partition("/")[0]
    return f"usr{path}" if first in ("bin", "sbin", "lib", "lib64") else path.lstrip("/")


class Layer:
    """One layer, entry by entry."""

    def __init__(self) -> None:
        self._file = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def file(self, name: str, content: bytes = b"", *, mode: int = 0o644, **more: object) -> Layer:
        return self.entry(name, tarfile.REGTYPE, content, mode=mode, **more)

    def folder(self, name: str, *, mode: int = 0o755) -> Layer:
        return self.entry(name, tarfile.DIRTYPE, mode=mode)

    def link(self, name: str, target: str) -> Layer:
        return self.entry(name, tarfile.SYMTYPE, linkname=target)

    def same(self, name: str, target: str) -> Layer:
        return self.entry(name, tarfile.LNKTYPE, linkname=target)

    def entry(self, name: str, kind: bytes, content: bytes = b"", **more: object) -> Layer:
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(content)
        info.mtime = 1_600_000_000
        for key, each in more.items():
            setattr(info, key, each)
        self._tar.addfile(info, io.BytesIO(content))
        return self

    def content(self) -> bytes:
        self._tar.close()
        return self._file.getvalue()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


class Layout:
    """An OCI layout: blobs by digest and an index, each of which a test can falsify."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.index: list[dict[str, object]] = []

    def blob(self, content: bytes) -> dict[str, object]:
        self.blobs[digest(content)] = content
        return {"digest": digest(content), "size": len(content)}

    def document(self, kind: str, content: object) -> dict[str, object]:
        described = self.blob(json.dumps(content).encode())
        return {"mediaType": f"application/vnd.oci.image.{kind}.v1+json", **described}

    def image(
        self,
        layers: Sequence[bytes],
        *,
        name: str = "",
        compressed: bool = True,
        platform: tuple[str, str] = ("linux", "amd64"),
        listed: bool = True,
    ) -> dict[str, object]:
        """Add an image of these tar archives; its descriptor."""
        system, machine = platform
        config = self.document(
            "config",
            {
                "os": system,
                "architecture": machine,
                "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
            },
        )
        blobs = [self.blob(packed(layer) if compressed else layer) for layer in layers]
        manifest = self.document(
            "manifest", {"schemaVersion": 2, "config": config, "layers": blobs}
        )
        if name:
            manifest["annotations"] = {"org.opencontainers.image.ref.name": name}
        if listed:
            self.index.append(manifest)
        return manifest

    def files(self) -> dict[str, bytes]:
        found = {f"blobs/sha256/{name[7:]}": content for name, content in self.blobs.items()}
        found["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
        found["index.json"] = json.dumps({"schemaVersion": 2, "manifests": self.index}).encode()
        return found

    def folder(self, folder: Path) -> Path:
        for name, content in self.files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder

    def archive(self, file: Path) -> Path:
        layer = Layer()
        for name, content in self.files().items():
            layer.file(name, content)
        file.write_bytes(layer.content())
        return file


def docker_save(file: Path, layers: Sequence[bytes], *, tag: str = "made:1") -> Path:
    """An archive as `docker save` of Docker 20 writes it."""
    config = json.dumps(
        {
            "os": "linux",
            "architecture": "amd64",
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
        }
    ).encode()
    name = f"{digest(config)[7:]}.json"
    archive = Layer()
    paths = []
    for layer in layers:
        paths.append(f"{digest(layer)[7:]}/layer.tar")
        archive.file(paths[-1], layer)
    archive.file(name, config)
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": paths}]
    archive.file("manifest.json", json.dumps(manifest).encode())
    file.write_bytes(archive.content())
    return file


def busybox_rootfs(file: Path) -> Path | None:
    """A root of one static program, without a merged /usr; ``None`` where busybox is missing."""
    busybox = shutil.which("busybox")
    if busybox is None:
        return None
    layer = Layer().file("bin/busybox", Path(busybox).read_bytes(), mode=0o755)
    for name in ("sh", "cat", "ls", "true", "id", "env"):
        layer.same(f"bin/{name}", "bin/busybox")
    layer.file("etc/os-release", b"ID=busybox\n")
    file.write_bytes(layer.content())
    return file
