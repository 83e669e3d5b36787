"""Hostile images: each is refused by name or harmless. Nothing outside changes, nothing is left."""

from __future__ import annotations

import gzip
import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from actum.errors import Refused
from actum.images.image_bounds import Bounds
from actum.images.image_store import ImageStore
from common.images import Layer, Layout, digest, docker_save, packed

_SMALL = Bounds(
    content_bytes=32 << 20, entries=2_000, at_ease_bytes=1 << 20, header_bytes=64 << 10, seconds=60
)


class Place:
    """A store beside files that no image may touch."""

    def __init__(self, folder: Path) -> None:
        self.outside = folder / "outside"
        self.outside.mkdir()
        (self.outside / "file").write_text("untouched")
        (folder / "home").mkdir()
        self.store = ImageStore(folder / "home")
        self.folder = folder
        self.before = self.state()

    def state(self) -> list[tuple[str, int, int, str]]:
        """Everything outside of the store: names, modes, link counts and contents."""
        found = []
        for path in sorted(self.outside.rglob("*")):
            look = path.lstat()
            text = path.read_text() if stat.S_ISREG(look.st_mode) else ""
            found.append((str(path), look.st_mode, look.st_nlink, text))
        return found

    def add(self, archive: Path | bytes, bounds: Bounds = _SMALL) -> Path:
        """The tree of the added image."""
        if isinstance(archive, bytes):
            file = self.folder / "archive"
            file.write_bytes(archive)
            archive = file
        try:
            image = self.store.add(archive, at=datetime.now(UTC), bounds=bounds).image
        finally:
            assert self.state() == self.before
            assert [name for name in os.listdir(self.store.folder) if "-" in name] == []
        return Path(image.folder)

    def layers(self, *layers: Layer, bounds: Bounds = _SMALL) -> Path:
        layout = Layout()
        layout.image([layer.content() for layer in layers])
        return self.add(layout.archive(self.folder / "layout.tar"), bounds)

    def refused(self, add: Callable[[], object]) -> Refused:
        count = len(self.store.all())
        with pytest.raises(Refused) as refusal:
            add()
        assert len(self.store.all()) == count
        assert refusal.value.code.startswith("IMAGE_")
        assert refusal.value.remedy
        assert "\n" not in refusal.value.message and "\x1b" not in refusal.value.message
        return refusal.value


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)


def _tree(root: Path) -> dict[str, str]:
    """Path -> what it is: `/` for a folder, `-> target`, or the content of a file."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            inside = str(path.relative_to(root))
            if path.is_symlink():
                found[inside] = f"-> {os.readlink(path)}"
            else:
                found[inside] = "/" if path.is_dir() else path.read_text(errors="replace")
    return found


def test_control_layers_are_applied_in_order(place: Place) -> None:
    root = place.layers(
        Layer().file("a", b"1").file("b", b"1").file("d/x", b"1").file("o/x", b"1").link("l", "a"),
        Layer().file(".wh.b").file("a", b"2").file("d/y", b"2").file("o/.wh..wh..opq").file("o/z"),
        Layer().same("d/same", "d/y").file("e", b"3", mode=0o755),
    )
    assert _tree(root) == {
        "a": "2",
        "d": "/",
        "d/x": "1",
        "d/y": "2",
        "d/same": "2",
        "l": "-> a",
        "o": "/",
        "o/z": "",
        "e": "3",
    }
    assert (root / "d/same").stat().st_ino == (root / "d/y").stat().st_ino
    assert stat.S_IMODE((root / "e").stat().st_mode) == 0o755
    assert (root / "a").stat().st_mtime == 1_600_000_000


@pytest.mark.parametrize("name", ["../outside/file", "a/../../outside/file", "..", "a/.."])
def test_a_path_with_dots_is_refused(place: Place, name: str) -> None:
    refusal = place.refused(lambda: place.layers(Layer().file(name, b"changed")))
    assert refusal.code == "IMAGE_INVALID" and "`..`" in refusal.message


def test_an_absolute_path_is_one_in_the_image(place: Place) -> None:
    name = f"{place.outside}/file"
    root = place.layers(Layer().file(name, b"changed"))
    assert Path(f"{root}{name}").read_text() == "changed"


@pytest.mark.parametrize("through", ["/OUTSIDE", "../../../../../../../..OUTSIDE", "OUTSIDE"])
def test_a_path_through_a_link_stays_in_the_image(place: Place, through: str) -> None:
    outside = str(place.outside)
    target = through.replace("/OUTSIDE", outside).replace("OUTSIDE", outside[1:])
    root = place.layers(
        Layer().link("way", target), Layer().file("way/file", b"changed").file("way/new", b"new")
    )
    written = [path for path, what in _tree(root).items() if what == "changed"]
    assert len(written) == 1 and written[0].endswith("outside/file")
    assert os.readlink(root / "way") == target


def test_a_link_in_a_circle_is_refused(place: Place) -> None:
    layers = Layer().link("a", "b").link("b", "a"), Layer().file("a/file")
    assert "links" in place.refused(lambda: place.layers(*layers)).message


def test_a_link_that_grows_ends(place: Place) -> None:
    """Each step through it adds two more."""
    layers = Layer().link("a", "a/a/b"), Layer().file("a/file")
    assert place.refused(lambda: place.layers(*layers)).code == "IMAGE_INVALID"


@pytest.mark.parametrize("target", ["{}/file", "../../../outside/file", "nothing", ""])
def test_a_hard_link_to_a_file_outside_is_refused(place: Place, target: str) -> None:
    target = target.format(place.outside)
    refusal = place.refused(lambda: place.layers(Layer().same("stolen", target)))
    assert refusal.code == "IMAGE_INVALID"


def test_a_hard_link_through_a_link_takes_nothing_outside(place: Place) -> None:
    layer = Layer().link("way", str(place.outside)).same("stolen", "way/file")
    assert "nothing in the image" in place.refused(lambda: place.layers(layer)).message


def test_a_hard_link_to_a_link_is_a_link(place: Place) -> None:
    root = place.layers(Layer().link("one", "/etc/shadow").same("two", "one"))
    assert _tree(root) == {"one": "-> /etc/shadow", "two": "-> /etc/shadow"}


def test_a_hard_link_to_a_folder_is_refused(place: Place) -> None:
    layer = Layer().folder("a").same("b", "a")
    assert "a folder" in place.refused(lambda: place.layers(layer)).message


@pytest.mark.req("004-53")
def test_special_files_are_left_out_and_bits_removed(place: Place) -> None:
    layer = (
        Layer()
        .entry("dev/mem", tarfile.CHRTYPE, devmajor=1, devminor=1)
        .entry("disk", tarfile.BLKTYPE, devmajor=254, devminor=0)
        .entry("pipe", tarfile.FIFOTYPE)
        .file("su", b"x", mode=0o6755)
        .folder("sticky", mode=0o3777)
        .file("secret", b"x", mode=0o000)
        .file("open", b"x", mode=0o666)
    )
    root = place.layers(layer)
    assert set(_tree(root)) == {"su", "sticky", "secret", "open"}
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in _tree(root)}
    assert modes == {"su": 0o755, "sticky": 0o755, "secret": 0o644, "open": 0o644}
    assert {(root / name).stat().st_uid for name in _tree(root)} == {os.geteuid()}
    (image,) = place.store.all()
    assert image.left_out == 3 and image.masked == 2


@pytest.mark.parametrize("name", [".wh...", ".wh..", ".wh.", "d/.wh..."])
def test_a_whiteout_of_no_name_is_refused(place: Place, name: str) -> None:
    refusal = place.refused(lambda: place.layers(Layer().file("d/x"), Layer().file(name)))
    assert "no name" in refusal.message


def test_whiteouts_remove_lower_layers_only(place: Place) -> None:
    root = place.layers(
        Layer().file("d/old", b"1").file("f", b"1").file("deep/a/b/old", b"1"),
        Layer().file("d/new", b"2").file(".wh.d").file("f", b"2").file(".wh.f")
        .file(".wh.deep").file("deep/a/new", b"2").file(".wh.never-there"),
    )  # fmt: skip
    assert _tree(root) == {
        "d": "/",
        "d/new": "2",
        "f": "2",
        "deep": "/",
        "deep/a": "/",
        "deep/a/new": "2",
    }


def test_an_opaque_root_and_one_through_a_link(place: Place) -> None:
    outside = str(place.outside)
    root = place.layers(
        Layer().file("gone", b"1").link("way", outside),
        Layer().file("way/.wh..wh..opq").file("way/.wh.file"),
        Layer().file(".wh..wh..opq").file("here", b"3"),
    )
    assert _tree(root) == {"here": "3"}


def test_a_bomb_is_refused_while_it_is_read(place: Place) -> None:
    bomb = Layer().file("zeros", bytes(31 << 20)).content()
    layout = Layout()
    layout.image([bomb])
    refusal = place.refused(lambda: place.add(layout.archive(place.folder / "b.tar")))
    assert refusal.code == "IMAGE_TOO_LARGE" and "200 times" in refusal.message
    refusal = place.refused(lambda: place.add(gzip.compress(bomb)))
    assert refusal.code == "IMAGE_TOO_LARGE"


def test_content_is_bounded_without_compression(place: Place) -> None:
    layer = Layer().file("a", os.urandom(20 << 20)).file("a", os.urandom(20 << 20))
    assert "MiB of content" in place.refused(lambda: place.layers(layer)).message


def test_many_names_are_refused(place: Place) -> None:
    layer = Layer()
    for number in range(2_001):
        layer.file(f"d/{number}")
    assert "2000 names" in place.refused(lambda: place.layers(layer)).message


def test_a_hundred_thousand_names_are_unpacked(place: Place) -> None:
    layer = Layer()
    content = b"".join(_empty(f"d{number % 100}/{number}") for number in range(100_000))
    assert layer.content()
    root = place.add(content + bytes(1024), Bounds())
    assert sum(1 for path in root.rglob("*") if path.is_file()) == 100_000
    place.store.remove(place.store.all()[0])
    assert place.store.all() == ()


def _empty(name: str) -> bytes:
    return tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT)


def test_names_implied_by_paths_count(place: Place) -> None:
    layer = Layer()
    for number in range(100):
        layer.file("/".join(f"{number}x{step}" for step in range(30)) + "/f")
    assert "names" in place.refused(lambda: place.layers(layer)).message


def test_a_root_of_many_names_is_refused(place: Place) -> None:
    layer = Layer()
    for number in range(200):
        layer.file(f"{number}")
    assert "root has more" in place.refused(lambda: place.layers(layer)).message


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x" * 256, "longer than 255"),
        ("d/" * 200 + "f", "deeper"),
        (("y" * 200 + "/") * 20, "3000"),
    ],
)
def test_long_paths_are_refused(place: Place, name: str, why: str) -> None:
    refusal = place.refused(lambda: place.layers(Layer().file(name)))
    assert why in refusal.message and len(refusal.message) < 400


def test_paths_that_links_make_long_are_refused(place: Place) -> None:
    layer = Layer()
    deep = "/".join(["z" * 200] * 14)
    layer.folder(deep).link("short", deep)
    layer.file("short/" + "/".join(["q" * 200] * 13) + "/f")
    refusal = place.refused(lambda: place.layers(layer, bounds=Bounds()))
    assert "longer than 3000" in refusal.message


def _pax(**records: str | bytes) -> Layer:
    return Layer().file("given", b"x", pax_headers=records)


def test_a_name_with_a_nul_is_refused(place: Place) -> None:
    raw = _pax(path="aXb").content().replace(b"path=aXb", b"path=a\0b")
    assert "NUL" in place.refused(lambda: place.add(raw)).message


def test_odd_names_are_kept_exactly(place: Place) -> None:
    """A newline, an escape sequence and bytes that are no text are names like any other."""
    names = [b"new\nline", b"\x1b[2Jclear", b"\xff\xfe", b"-rf", b"a b", b"quo'te"]
    content = b"".join(
        tarfile.TarInfo(name.decode("utf-8", "surrogateescape")).tobuf(
            tarfile.GNU_FORMAT, "utf-8", "surrogateescape"
        )
        for name in names
    )
    root = place.add(content + bytes(1024))
    assert sorted(os.listdir(os.fsencode(root))) == sorted(names)


def test_a_huge_extended_header_is_refused(place: Place) -> None:
    xattr = {"SCHILY.xattr.user.big": "x" * (100 << 10)}
    layer = Layer().file("given", b"x", pax_headers=xattr)
    assert "extended header" in place.refused(lambda: place.layers(layer)).message


def test_extended_attributes_are_dropped(place: Place) -> None:
    capability = {"SCHILY.xattr.security.capability": "x" * 20, "SCHILY.xattr.user.a": "b"}
    root = place.layers(Layer().file("given", b"x", pax_headers=capability))
    assert os.listxattr(root / "given") == []


@pytest.mark.parametrize(
    "records",
    [
        b"20 path=\n",
        b"99999999 path=a\n",
        b"0 path=a\n",
        b"-9 path=a\n",
        b"9 path=a ",
        b"10 path=a\n\n9 path",
        b"8 patha\n",
    ],
)
def test_malformed_records_are_refused(place: Place, records: bytes) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    content = header.tobuf() + records.ljust(512, b"\0") + _empty("given") + bytes(1024)
    assert place.refused(lambda: place.add(content)).code == "IMAGE_INVALID"


def test_a_sparse_file_is_refused(place: Place) -> None:
    layer = Layer().file("given", b"x", pax_headers={"GNU.sparse.major": "1"})
    assert "sparse" in place.refused(lambda: place.layers(layer)).message
    assert "sparse" in place.refused(lambda: place.add(_typed(b"S"))).message


def _typed(kind: bytes) -> bytes:
    info = tarfile.TarInfo("given")
    info.type = kind
    return info.tobuf() + bytes(1024)


@pytest.mark.parametrize("kind", [b"V", b"M", b"D", b"N", b"X", b"Z", b"\xff"])
def test_an_unknown_kind_is_refused(place: Place, kind: bytes) -> None:
    assert "unknown kind" in place.refused(lambda: place.add(_typed(kind))).message


def test_an_endless_chain_of_headers_is_refused(place: Place) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = b"L", 5
    content = (header.tobuf() + b"name\0".ljust(512, b"\0")) * 50_000
    assert place.refused(lambda: place.add(content)).code == "IMAGE_INVALID"


def test_damaged_archives_are_refused(place: Place) -> None:
    whole = Layer().file("a", b"x" * 5_000).content()
    for content in (whole[:1_500], b"no archive" * 100, whole[:200] + b"!" + whole[201:]):
        assert place.refused(lambda content=content: place.add(content)).code == "IMAGE_INVALID"
    zipped = packed(whole)
    for content in (zipped[:-20], zipped + b"more", zipped[:30] + b"\xff\xff" + zipped[32:]):
        assert place.refused(lambda content=content: place.add(content)).code == "IMAGE_INVALID"
    place.add(zipped + packed(b"") + bytes(100))  # control: members and padding of gzip


@pytest.mark.parametrize("magic", [b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh9"])
def test_other_compressions_are_refused_by_name(place: Place, magic: bytes) -> None:
    assert place.refused(lambda: place.add(magic + bytes(600))).code == "IMAGE_COMPRESSION"
    layout = Layout()
    manifest = layout.image([Layer().file("a").content()])
    _edit(layout, manifest, lambda m: m.update(layers=[layout.blob(magic + bytes(600))]))
    archive = layout.archive(place.folder / "l.tar")
    assert place.refused(lambda: place.add(archive)).code == "IMAGE_COMPRESSION"


def _edit(layout: Layout, manifest: dict[str, object], change: Callable[[dict], None]) -> None:
    document = json.loads(layout.blobs[str(manifest["digest"])])
    change(document)
    layout.index[:] = [layout.document("manifest", document)]


def _lies(place: Place, change: Callable[[Layout, dict[str, object]], None]) -> Refused:
    layout = Layout()
    manifest = layout.image([Layer().file("a", b"x").content()])
    change(layout, manifest)
    folder = place.folder / "layout"
    refusal = place.refused(lambda: place.add(layout.folder(folder)))
    again = place.refused(lambda: place.add(layout.archive(place.folder / "layout.tar")))
    assert again.code == refusal.code
    return refusal


def _first_layer(layout: Layout, manifest: dict[str, object]) -> str:
    return str(json.loads(layout.blobs[str(manifest["digest"])])["layers"][0]["digest"])


def test_a_layer_whose_digest_lies_is_refused(place: Place) -> None:
    def lie(layout: Layout, manifest: dict[str, object]) -> None:
        other = packed(Layer().file("a", b"y").content())
        name = _first_layer(layout, manifest)
        layout.blobs[name] = other.ljust(len(layout.blobs[name]), b"\0")

    assert _lies(place, lie).code == "IMAGE_DIGEST"


def test_a_layer_whose_content_is_another_is_refused(place: Place) -> None:
    """The manifest names the layer truthfully, and the configuration another content."""

    def lie(layout: Layout, manifest: dict[str, object]) -> None:
        other = layout.blob(packed(Layer().file("a", b"y").content()))
        _edit(layout, manifest, lambda m: m.update(layers=[other]))

    assert _lies(place, lie).code == "IMAGE_DIGEST"


def test_documents_whose_digests_lie_are_refused(place: Place) -> None:
    def lie(layout: Layout, manifest: dict[str, object]) -> None:
        layout.blobs[str(manifest["digest"])] += b" "

    assert _lies(place, lie).code == "IMAGE_DIGEST"


def test_a_missing_blob_is_refused(place: Place) -> None:
    def lie(layout: Layout, manifest: dict[str, object]) -> None:
        del layout.blobs[_first_layer(layout, manifest)]

    assert "not in the archive" in _lies(place, lie).message


@pytest.mark.parametrize(
    "name", ["sha256:../../../outside/file", "md5:00", "sha256:" + "A" * 64, 7]
)
def test_a_digest_that_is_a_path_is_refused(place: Place, name: object) -> None:
    def lie(layout: Layout, manifest: dict[str, object]) -> None:
        _edit(layout, manifest, lambda m: m["layers"][0].update(digest=name))

    assert _lies(place, lie).code == "IMAGE_INVALID"


def test_an_index_within_an_index_ends(place: Place) -> None:
    layout = Layout()
    manifest = layout.image([Layer().file("a").content()], listed=False)
    inner = manifest
    for _ in range(6):
        inner = layout.document("index", {"schemaVersion": 2, "manifests": [inner]})
    layout.index.append(inner)
    refusal = place.refused(lambda: place.add(layout.archive(place.folder / "n.tar")))
    assert "nested" in refusal.message
    layout.index[:] = [
        layout.document("index", {"manifests": [manifest]}),
        layout.document("index", {"manifests": [manifest, manifest], "same": 1}),
    ]
    place.add(layout.archive(place.folder / "n2.tar"))  # control: two levels, one image


def test_an_index_that_names_itself_is_refused(place: Place) -> None:
    """Its digest cannot be right, so the archive can only lie about it."""
    layout = Layout()
    name = f"sha256:{'0' * 64}"
    loop = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": name, "size": 0}
    content = json.dumps({"manifests": [loop]}).encode()
    loop["size"] = len(content)
    layout.blobs[name] = content
    layout.index.append(loop)
    refusal = place.refused(lambda: place.add(layout.archive(place.folder / "loop.tar")))
    assert refusal.code == "IMAGE_DIGEST"


def test_an_index_that_fans_out_is_refused(place: Place) -> None:
    layout = Layout()
    inner = [layout.image([Layer().file(str(n)).content()], listed=False) for n in range(3)]
    for level in range(3):
        listed = [dict(each) for each in inner for _ in range(8)]
        inner = [layout.document("index", {"manifests": listed, "level": level})]
        inner[0]["annotations"] = {"org.opencontainers.image.ref.name": f"n{level}"}
    layout.index += inner * 80
    refusal = place.refused(lambda: place.add(layout.archive(place.folder / "f.tar")))
    assert "manifests" in refusal.message or refusal.code == "IMAGE_AMBIGUOUS"


@pytest.mark.parametrize(
    "text",
    [b"{", b"[" * 100_000, b'{"manifests": [], "manifests": []}', b"[]", b"\xff", b"9" * 9_000],
)
def test_malformed_documents_are_refused(place: Place, text: bytes) -> None:
    layer = Layer().file("oci-layout", b"{}").file("index.json", text)
    place.refused(lambda: place.add(layer.content()))


def test_a_document_that_is_too_large_is_refused(place: Place) -> None:
    layer = Layer().file("oci-layout", b"{}").file("index.json", b" " * (5 << 20))
    assert place.refused(lambda: place.add(layer.content())).code == "IMAGE_TOO_LARGE"


def test_a_name_twice_in_an_archive_is_refused(place: Place) -> None:
    file = docker_save(place.folder / "save.tar", [Layer().file("a").content()])
    twice = Layer().file("manifest.json", b"[]").content().rstrip(b"\0")
    twice = twice.ljust(-(-len(twice) // 512) * 512, b"\0")
    refusal = place.refused(lambda: place.add(twice + file.read_bytes()))
    assert "twice" in refusal.message


def test_a_layout_of_links_reads_nothing_outside(place: Place) -> None:
    layout = Layout()
    manifest = layout.image([Layer().file("a").content()])
    folder = layout.folder(place.folder / "layout")
    blob = folder / "blobs" / str(manifest["digest"]).replace(":", "/")
    blob.rename(place.outside.parent / "elsewhere")
    blob.symlink_to(place.outside.parent / "elsewhere")
    assert "not in the archive" in place.refused(lambda: place.add(folder)).message
    blob.unlink()
    os.mkfifo(blob)  # without a writer: it must not wait
    assert "regular file" in place.refused(lambda: place.add(folder)).message


def test_links_between_files_of_an_archive_stay_in_it(place: Place) -> None:
    file = docker_save(place.folder / "save.tar", [Layer().file("a").content()])
    with tarfile.open(file) as tar:
        manifest = json.loads(tar.extractfile("manifest.json").read())
        config = tar.extractfile(manifest[0]["Config"]).read()
    manifest[0]["Layers"] = ["link/layer.tar"]
    layer = Layer().file(manifest[0]["Config"], config)
    layer.link("link/layer.tar", f"../../../../../..{place.outside}/file")
    layer.file("manifest.json", json.dumps(manifest).encode())
    assert "not in the archive" in place.refused(lambda: place.add(layer.content())).message


def test_a_configuration_whose_name_lies_is_refused(place: Place) -> None:
    layer = Layer().file("0" * 64 + ".json", b"{}")
    manifest = [{"Config": "0" * 64 + ".json", "Layers": [], "RepoTags": ["a:1"]}]
    layer.file("manifest.json", json.dumps(manifest).encode())
    assert "has the digest" in place.refused(lambda: place.add(layer.content())).message


def test_an_image_of_another_platform_is_refused(place: Place) -> None:
    layout = Layout()
    layout.image([Layer().file("a").content()], platform=("linux", "s390x"))
    archive = layout.archive(place.folder / "p.tar")
    assert place.refused(lambda: place.add(archive)).code == "IMAGE_PLATFORM"


def test_several_images_are_refused_until_one_is_named(place: Place) -> None:
    layout = Layout()
    layout.image([Layer().file("a").content()], name="one:1")
    layout.image([Layer().file("b").content()], name="two:1")
    archive = layout.archive(place.folder / "two.tar")
    assert place.refused(lambda: place.add(archive)).code == "IMAGE_AMBIGUOUS"
    added = place.store.add(archive, at=datetime.now(UTC), image="two:1").image
    assert _tree(Path(added.folder)) == {"b": ""}


def test_what_is_no_file_is_refused(place: Place) -> None:
    assert place.refused(lambda: place.add(Path("/dev/zero"))).code == "IMAGE_INVALID"
    assert place.refused(lambda: place.add(place.outside)).code == "IMAGE_INVALID"
    assert place.refused(lambda: place.add(Path("/nowhere"))).code == "IMAGE_UNREADABLE"


def test_a_pipe_is_read_once(place: Place) -> None:
    content = packed(Layer().file("a", b"x").content())
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        image = place.store.add(stream, at=datetime.now(UTC)).image
    assert _tree(Path(image.folder)) == {"a": "x"}
    assert image.layers == (digest(gzip.decompress(content)),)


def test_time_is_bounded(place: Place) -> None:
    layer = Layer().file("a", b"x")
    refusal = place.refused(lambda: place.layers(layer, bounds=Bounds(seconds=0.0)))
    assert "took more" in refusal.message


def test_a_stream_that_stops_is_refused(place: Place) -> None:
    with open("/dev/null", "rb") as stream, pytest.raises(Refused, match="no files"):
        place.store.add(stream, at=datetime.now(UTC))
    assert place.store.all() == ()
