"""A tool in an image: the image's files, nothing of the host's, and the walls of every sandbox."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Cancel, Result, Runtime
from actum.errors import Refused
from actum.images.model import Image
from common.imaged_tools import add_image, give_image
from common.images import Layer, host_programs, host_rootfs
from common.made_tools import MadeTools, cli_adapter, made_tools

pytestmark = pytest.mark.sandbox

#: Of the host, and in no image that is made here.
_HOST_ONLY = ("/usr/share", "/usr/lib/locale", "/etc/ld.so.cache", "/etc/ssl", "/etc/alternatives")


@contextlib.contextmanager
def _imaged(folder: Path) -> Iterator[tuple[Runtime, Image]]:
    with Runtime.temporary(pool=False) as runtime:
        image = add_image(runtime.settings.root, host_rootfs(folder / "image.tar"))
        give_image(runtime.settings.root, image.reference, "shell")
        yield runtime, image


@pytest.fixture(scope="module")
def imaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runtime, Image]]:
    with _imaged(tmp_path_factory.mktemp("image")) as pair:
        yield pair


def _out(result: Result) -> str:
    assert result.result is not None, result.violations
    return result.check().result.stdout


def test_the_files_are_the_images(imaged: tuple[Runtime, Image]) -> None:
    runtime, _ = imaged
    assert _out(runtime.shell("cat /etc/in-image /etc/os-release")) == (
        "of the image\nID=made\nNAME=Made\n"
    )
    assert _out(runtime.shell("ls /usr/bin | sort")).split() == sorted(
        os.path.basename(path) for path in host_programs() if path.startswith("/usr/bin/")
    )


@pytest.mark.req("004-5", "004-44")
def test_nothing_of_the_hosts_system_is_inside(imaged: tuple[Runtime, Image]) -> None:
    runtime, _ = imaged
    there = [path for path in _HOST_ONLY if os.path.exists(path)]
    assert there  # control: this host has them
    script = "".join(f"test -e {path} && echo {path}\n" for path in there) + "true\n"
    assert _out(runtime.shell(script)) == ""
    give_image(runtime.settings.root, "host", "shell")
    try:  # control: a sandbox on the host's programs has them
        assert set(_out(runtime.shell(script)).split()) & set(there)
    finally:
        give_image(runtime.settings.root, imaged[1].reference, "shell")
    etc = _out(runtime.shell("ls /etc")).split()
    assert set(etc) == {
        *("actum", "group", "hostname", "hosts", "in-image"),
        *("nsswitch.conf", "os-release", "passwd", "resolv.conf"),
    }


@pytest.mark.req("004-44")
def test_no_mount_of_the_hosts_system_is_inside(imaged: tuple[Runtime, Image]) -> None:
    runtime, image = imaged
    mounts = [line.split() for line in _out(runtime.shell("cat /proc/self/mountinfo")).splitlines()]
    roots = {each[4]: each[3] for each in mounts}
    assert roots["/usr"].endswith(f"images/{image.id[7:]}/root/usr")
    assert {each[4] for each in mounts if each[3] in ("/usr", "/etc", "/")} <= {
        *("/", "/tmp", "/dev/shm", "/artifacts", "/proc", "/etc"),
        *(path for path in roots if path.startswith(str(runtime.settings.root))),
    }


@pytest.mark.req("004-17", "004-24")
@pytest.mark.parametrize("name", ["/usr/bin/new", "/etc/new", "/new", "/var/new", "/etc/in-image"])
def test_an_image_cannot_be_written(imaged: tuple[Runtime, Image], name: str) -> None:
    runtime, image = imaged
    result = runtime.shell(f"echo changed > {name}")
    assert result.result is not None and result.result.exit_code != 0
    assert not Path(image.folder, name.lstrip("/")).is_file() or name == "/etc/in-image"
    assert Path(image.folder, "etc/in-image").read_text() == "of the image\n"
    assert _out(runtime.shell("echo x > /tmp/new && echo y > here && cat /tmp/new")) == "x\n"


@pytest.mark.req("004-44")
def test_the_store_and_the_home_are_not_inside(imaged: tuple[Runtime, Image]) -> None:
    runtime, image = imaged
    result = runtime.shell(f"ls {runtime.settings.home}/images; cat {image.folder}/etc/in-image")
    assert result.result is not None and result.result.stdout == ""


@pytest.mark.req("004-73")
def test_receipt_and_proof_name_image_and_file(tmp_path: Path) -> None:
    with made_tools() as made:
        image = add_image(made.root, host_rootfs(tmp_path / "image.tar"))
        made.add("lines", [cli_adapter("ADP-1", "cat", base_args=())], image=image.reference)
        result = made.rt.exec("lines", "/etc/in-image").check()
        executable = made.predicate(result)["executable"]
        assert executable["image"] == image.id and executable["path"] == "/usr/bin/cat"
        assert made.broken() == []


def test_links_of_an_image_are_resolved_in_it(tmp_path: Path) -> None:
    """A link to a program of the host, which the image does not have, finds nothing."""
    with made_tools() as made:
        layer = Layer()
        for inside, source in host_programs(["sh", "cat"]).items():
            layer.file(inside.lstrip("/"), source.read_bytes(), mode=0o755)
        layer.link("usr/bin/absolute", "/usr/bin/cat").link("usr/bin/up", "../../../../usr/bin/cat")
        layer.link("usr/bin/missing", "/usr/bin/env").link("usr/bin/round", "round")
        layer.link("usr/bin/proc", "/proc/self/exe")
        (tmp_path / "image.tar").write_bytes(layer.content())
        image = add_image(made.root, tmp_path / "image.tar")
        for name in ("absolute", "up", "missing", "round", "proc"):
            made.add(name, [cli_adapter(f"ADP-{name}", name, base_args=())], image=image.id)
        (made.root / "file").write_text("content")
        assert os.path.exists("/usr/bin/env")  # control
        for name in ("absolute", "up"):
            assert made.rt.exec(name, "file").check().result.stdout == "content"
        for name in ("missing", "round", "proc"):
            result = made.rt.exec(name, "file")
            assert result.reason_codes == ("EXECUTABLE_MISSING",)


def _minimal(tmp_path: Path, layer: Layer) -> Path:
    (tmp_path / "image.tar").write_bytes(layer.content())
    return tmp_path / "image.tar"


def test_an_image_without_a_merged_usr_and_with_other_roots(tmp_path: Path) -> None:
    """Programs in /bin and /opt, a file in the root, and no /etc, /usr or /var at all."""
    layer = Layer().file("opt/data/file", b"in opt").file("top", b"in the root")
    for inside, source in host_programs(["sh", "cat", "ls"]).items():
        path = inside.replace("/usr/", "").lstrip("/")
        layer.file(path, source.read_bytes(), mode=0o755)
    with made_tools() as made:
        image = add_image(made.root, _minimal(tmp_path, layer))
        made.add("sh", [cli_adapter("ADP-1")], image=image.reference)
        out = made.rt.exec("sh", stdin="cat /opt/data/file /top; ls /bin").check()
        assert out.result.stdout.endswith("in optin the rootcat\nls\nsh\n")


def test_an_image_without_a_shell(tmp_path: Path) -> None:
    layer = Layer()
    for inside, source in host_programs(["cat"]).items():
        layer.file(inside.lstrip("/"), source.read_bytes(), mode=0o755)
    with made_tools() as made:
        image = add_image(made.root, _minimal(tmp_path, layer))
        made.add("cat", [cli_adapter("ADP-1", "cat", base_args=())], image=image.reference)
        made.add("sh", [cli_adapter("ADP-2")], image=image.reference)
        assert made.rt.exec("cat", "/etc/hosts").check().result.stdout.startswith("127.0.0.1")
        assert made.rt.exec("sh", stdin="true").reason_codes == ("EXECUTABLE_MISSING",)


def test_a_statically_linked_program_of_another_c_library(tmp_path: Path) -> None:
    """The init is such a program: musl, static. It ends at once where it is no init."""
    from actum import native

    layer = Layer().file("bin/jail", native.content(native.INIT), mode=0o755)
    with made_tools() as made:
        image = add_image(made.root, _minimal(tmp_path, layer))
        made.add("jail", [cli_adapter("ADP-1", "jail", base_args=())], image=image.reference)
        result = made.rt.exec("jail")
        assert result.result is not None and result.result.exit_code not in (126, 127)


_MUSL = """
#include <stdio.h>
#include <pwd.h>
int main(void) { puts("musl"); return getpwuid(0) ? 0 : 1; }
"""


def test_a_program_of_another_c_library_with_its_own_loader(tmp_path: Path) -> None:
    """musl, linked dynamically: the image has its loader, and nothing of glibc."""
    (tmp_path / "hello.c").write_text(_MUSL)
    build = ["musl-gcc", "-o", tmp_path / "hello", tmp_path / "hello.c"]
    subprocess.run(build, check=True)
    loader = Path("/lib/ld-musl-x86_64.so.1")
    assert loader.exists()  # of Debian's package musl, as musl-gcc is
    layer = Layer().file("lib/ld-musl-x86_64.so.1", loader.read_bytes(), mode=0o755)
    layer.file("bin/hello", (tmp_path / "hello").read_bytes(), mode=0o755)
    with made_tools() as made:
        image = add_image(made.root, _minimal(tmp_path, layer))
        made.add("hello", [cli_adapter("ADP-1", "hello", base_args=())], image=image.reference)
        assert made.rt.exec("hello").check().result.stdout == "musl\n"


def _tool(made: MadeTools, tmp_path: Path, extra: Layer) -> Image:
    for inside, source in host_programs(["sh", "cat", "ls", "mkdir"]).items():
        extra.file(inside.lstrip("/"), source.read_bytes(), mode=0o755)
    image = add_image(made.root, _minimal(tmp_path, extra))
    made.add("sh", [cli_adapter("ADP-1")], image=image.reference)
    return image


@pytest.mark.req("004-44")
def test_links_in_the_place_of_our_folders_lead_nowhere(tmp_path: Path) -> None:
    """The image has links at every path that the sandbox mounts something on."""
    outside = tmp_path / "outside"
    outside.mkdir()
    extra = Layer()
    with made_tools() as made:
        first = made.root.parts[1]
        for name in {"proc", "dev", "tmp", "run", "artifacts", "etc", "var", first}:
            extra.link(name, str(outside))
        _tool(made, tmp_path, extra)
        script = (
            "cat /proc/1/status /etc/hosts | head -n 1; echo x > /dev/null; echo y > /tmp/y; pwd"
        )
        result = made.rt.exec("sh", stdin=script.replace("| head -n 1", "> /tmp/z"))
        assert result.check().result.stdout.strip() == str(made.root)
    assert list(outside.iterdir()) == []


_PRELOADED = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void)
{
    int file = open("/proc/1/mem", O_WRONLY);
    dprintf(2, "loaded in %d, init %s\\n", getpid(), file < 0 ? "closed" : "open");
}
"""


def test_a_preloaded_library_of_an_image_reaches_the_tool_alone(tmp_path: Path) -> None:
    """The init is static, and of the host: no loader and no file of the image is used for it."""
    (tmp_path / "begin.c").write_text(_PRELOADED)
    build = ["gcc", "-shared", "-fPIC", "-o", tmp_path / "begin.so", tmp_path / "begin.c"]
    subprocess.run(build, check=True)
    extra = Layer().file("etc/ld.so.preload", b"/opt/begin.so\n")
    extra.file("opt/begin.so", (tmp_path / "begin.so").read_bytes(), mode=0o755)
    with made_tools() as made:
        _tool(made, tmp_path, extra)
        result = made.rt.exec("sh", stdin="cat /etc/ld.so.preload; kill -9 $$")
        assert result.result is not None
        assert result.result.stdout == "/opt/begin.so\n"
        said = result.result.stderr.splitlines()
        assert len(said) >= 2, "it was not loaded"
        assert all(line.endswith("init closed") for line in said)
        assert not any(line.startswith("loaded in 1,") for line in said)
        assert result.outcome.value == "TOOL_ERROR", "the ending is the kernel's"


def test_entries_of_an_image_in_proc_and_dev_are_not_there(tmp_path: Path) -> None:
    extra = Layer().file("proc/cpuinfo", b"forged").file("proc/1/environ", b"forged")
    extra.file("dev/null", b"forged").file("dev/own", b"forged").entry("dev/mem", b"3")
    extra.file("run/actum/forged", b"forged").file("artifacts/forged", b"forged")
    script = (
        "ls /dev /run; cat /dev/null /dev/own /proc/1/environ /run/actum/forged; ls /tmp;"
        " read first < /proc/cpuinfo; echo $first; echo x > /dev/null && cat /dev/null"
    )
    said = []
    for layer in (extra, Layer()):
        folder = tmp_path / str(len(said))
        folder.mkdir()
        with made_tools() as made:
            _tool(made, folder, layer)
            result = made.rt.exec("sh", stdin=script)
            assert result.result is not None
            said.append(result.result.stdout)
    assert "null" in said[0].split()
    assert "forged" not in said[0]
    assert said[0] == said[1], "as in an image without them"


def test_a_grant_is_visible_where_the_image_has_other_files(tmp_path: Path) -> None:
    """Beside the files that the image has in the folders above it."""
    with made_tools() as made:
        inside = str(made.root.parent).lstrip("/")
        extra = Layer().file(f"{made.root}/hidden".lstrip("/"), b"of the image")
        first = f"opt-{os.getpid()}"
        extra.file(f"{inside}/beside", b"of the image").file(f"{first}/file", b"x")
        _tool(made, tmp_path, extra)
        (made.root / "mine").write_text("of the project")
        script = f"cat mine; ls; cat /{first}/file; echo new > written; test -e hidden || echo gone"
        out = made.rt.exec("sh", stdin=script).check().result.stdout
        assert "of the project" in out and out.endswith("gone\n")
        assert (made.root / "written").read_text() == "new\n"


def test_a_replaced_program_is_not_started(tmp_path: Path) -> None:
    """The file that was checked is the file that runs, also in an image."""
    with made_tools() as made:
        image = _tool(made, tmp_path, Layer())
        assert made.rt.exec("sh", stdin="echo a").check().result.stdout == "a\n"
        before = made.predicate(made.rt.exec("sh", stdin="true"))["executable"]["sha256"]
        shell = Path(image.folder, "usr/bin/sh")
        content = shell.read_bytes()
        shell.unlink()
        shell.write_bytes(content + b"changed")
        shell.chmod(0o755)
        after = made.predicate(made.rt.exec("sh", stdin="true"))["executable"]["sha256"]
        assert after != before  # the receipt names what ran


def test_an_image_that_was_not_added_is_refused(tmp_path: Path) -> None:
    with made_tools() as made:
        image = _tool(made, tmp_path, Layer())
        assert made.rt.exec("sh", stdin="true").check()
        made.rt.images.remove(image.id, force=True)
        result = made.rt.exec("sh", stdin="true")
        assert result.reason_codes == ("IMAGE_MISSING",)
        assert "actum images add" in result.violations[0].message
        made.rt.images.add(tmp_path / "image.tar")
        assert made.rt.exec("sh", stdin="true").check()


def test_a_grant_over_the_program_is_refused(tmp_path: Path) -> None:
    """Else the project's file would run in the place of the one that was checked."""
    with made_tools() as made:
        layer = Layer()
        for inside, source in host_programs(["sh"]).items():
            layer.file(inside.lstrip("/"), source.read_bytes(), mode=0o755)
        own = f"{made.root}/bin"
        layer.file(
            f"{own}/sh".lstrip("/"), host_programs(["sh"])["/usr/bin/sh"].read_bytes(), mode=0o755
        )
        image = add_image(made.root, _minimal(tmp_path, layer))
        made.add("sh", [cli_adapter("ADP-1")], image=image.reference, path=[own])
        assert made.rt.exec("sh", stdin="true").reason_codes == ("PATH_NOT_GRANTABLE",)


def test_a_name_with_separators_of_mount_options(tmp_path: Path) -> None:
    """Colons and commas separate the layers and options of an overlay."""
    with made_tools() as made:
        first = made.root.parts[1]
        extra = Layer().file("a:b,lowerdir=/etc/file", b"odd").file(f"{first}/x", b"x")
        _tool(made, tmp_path, extra)
        out = made.rt.exec("sh", stdin="cat '/a:b,lowerdir=/etc/file'; pwd").check()
        assert out.result.stdout == f"odd{made.root}\n"


def test_an_image_in_use_is_not_removed(tmp_path: Path) -> None:
    with made_tools() as made:
        image = _tool(made, tmp_path, Layer())
        begun, cancel = threading.Event(), Cancel()

        def run() -> None:
            script = "echo begun; while true; do :; done"
            made.rt.exec(
                "sh", stdin=script, timeout="60s", on_output=lambda *_: begun.set(), cancel=cancel
            )

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
        with pytest.raises(Refused) as refusal:
            made.rt.images.remove(image.id, force=True)
        assert refusal.value.code == "IMAGE_IN_USE"
        assert made.rt.images.list() == (image,)
        cancel.cancel()
        thread.join(60)
        made.rt.images.remove(image.id, force=True)  # control
        assert made.rt.images.list() == ()


@pytest.mark.parametrize("way", ["link", "file", "folder"])
def test_a_denied_path_behind_a_link_of_an_image_is_refused_by_its_reason(
    tmp_path: Path, way: str
) -> None:
    """The policy resolved it on the host. With a folder in the link's place it is covered."""
    name = min(each.name for each in Path("/usr/share").iterdir() if each.is_dir())
    layer = Layer().folder("srv/real").file(f"srv/real/{name}/secret", b"of the image\n")
    if way == "link":
        layer.link("usr/share", "../srv/real")
    elif way == "file":
        layer.file("usr/share", b"a file\n")
    else:
        layer.file(f"usr/share/{name}/secret", b"of the image\n")
    script = f"cat /srv/real/{name}/secret; ls /usr/share/{name}; true"
    with made_tools() as made:
        _tool(made, tmp_path, layer)
        open_ = made.rt.exec("sh", stdin=script).check().result.stdout
        result = made.rt.exec(
            "sh", stdin=script, set={"sandbox.filesystem.deny": [f"/usr/share/{name}"]}
        )
    if way == "folder":
        assert open_ == "of the image\nsecret\n"
        assert result.check().result.stdout == "of the image\n"
        return
    assert result.reason_codes == ("DENY_NOT_COVERED",), result.violations
    (violation,) = result.violations
    assert f"/usr/share/{name}" in violation.message
