"""Other sandboxes, prepared for the same measurement.

System packages are installed by name with apt if the caller is root, Python packages by name with
pip into `bench/.peers`. Containers need no registry: their image is /bin/true and its libraries. A
peer that cannot be installed or run is listed with the reason. Each peer runs with its least
settings: no record, no policy, no receipt.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

Contender = Callable[[], object]

_ENVIRONMENT = Path(__file__).parent / ".peers"
_DEBIAN = {"bwrap": "bubblewrap", "crun": "crun", "podman": "podman", "dockerd": "docker.io"}
_TRUE = "/bin/true"
_WALL = (
    *("bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"),
    *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc"),
    *("--dev", "/dev", "--tmpfs", "/tmp"),
)

#: Python package -> a program that defines `true()`, `snippet()` or both.
_PROGRAMS = {
    "sandlock": """
import sandlock
readable = ["/usr", "/lib", "/lib64", "/bin", "/etc"]
def run(*words): assert sandlock.Sandbox(fs_readable=readable).run([*words]).success
def true(): run("/bin/true")
def snippet(): run("/usr/bin/python3", "-c", "print(1)")
""",
    "nono-py": """
import nono_py
allowed = nono_py.CapabilitySet()
for folder in ("/usr", "/lib", "/lib64", "/bin"):
    allowed.allow_path(folder, nono_py.AccessMode.READ)
def true(): assert nono_py.sandboxed_exec(allowed, ["/bin/true"]).exit_code == 0
def snippet():
    assert nono_py.sandboxed_exec(allowed, ["/usr/bin/python3", "-c", "print(1)"]).exit_code == 0
""",
    "llm-sandbox": """
from llm_sandbox import SandboxBackend, SandboxSession
session = SandboxSession(backend=SandboxBackend.BUBBLEWRAP, lang="python", verbose=False)
session.open()
def snippet(): assert session.run("print(1)").exit_code == 0
""",
}
_LOOP = """
import os, sys
answers = os.fdopen(os.dup(1), "w"); os.dup2(2, 1)
offered = [name for name in ("true", "snippet") if name in globals()]
for name in offered: globals()[name]()
answers.write(repr(offered).replace("'", '"') + "\\n"); answers.flush()
for line in sys.stdin:
    globals()[line.strip()]()
    answers.write("done\\n"); answers.flush()
"""
# crun refuses a host with both versions of cgroups mounted, so the second is covered.
_ONE_VERSION = 'mount -t tmpfs none /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'


class Peers:
    """The peers that can be measured, and why the others cannot."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.true: dict[str, Contender] = {"bwrap": _run(*_WALL, _TRUE)}
        self.snippet: dict[str, Contender] = {
            "bwrap": _run(*_WALL, "/usr/bin/python3", "-c", "print(1)")
        }
        self.slow: dict[str, Contender] = {}  #: /bin/true as well, 0.1 s each
        self.left_out: dict[str, str] = {}
        self._processes: list[subprocess.Popen[str]] = []

    def prepare(self) -> None:
        _install_debian()
        for name in _PROGRAMS:
            self._try(name, lambda name=name: self._package(name))
        self._try("crun", self._crun)
        self._try("podman", self._podman)
        self._try("docker", self._docker)
        for name, contenders in (("bwrap", self.true), ("bwrap", self.snippet)):
            if self._fails(contenders[name]):
                self.left_out[name] = self._fails(contenders[name])
                del contenders[name]

    def _try(self, name: str, make_ready: Callable[[], None]) -> None:
        try:
            make_ready()
        except (OSError, subprocess.SubprocessError, RuntimeError, ValueError) as error:
            self.left_out[name] = _reason(error)

    def _fails(self, contender: Contender) -> str:
        try:
            contender()
        except (OSError, subprocess.SubprocessError) as error:
            return _reason(error)
        return ""

    def _package(self, name: str) -> None:
        words = [with_package(name), "-c", _PROGRAMS[name] + _LOOP]
        process, offered = self._helper(words)
        if "true" in offered:
            self.true[name] = _asking(process, "true")
        if "snippet" in offered:
            self.snippet[name] = _asking(process, "snippet")

    def _helper(self, words: list[str]) -> tuple[subprocess.Popen[str], list[str]]:
        """A process that has the peer loaded, so that its start is not timed."""
        errors = open(self._folder / "errors", "w+")  # noqa: SIM115
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            bufsize=1,
        )
        self._processes.append(process)
        line = _out(process).readline()
        if not line:
            errors.seek(0)
            last = errors.read().strip().rpartition("\n")[2]
            raise RuntimeError(last[:200] or "it ended at once")
        return process, json.loads(line)

    def _crun(self) -> None:
        bundle = self._folder / "bundle"
        (bundle / "rootfs").mkdir(parents=True)
        for link in ("bin", "lib", "lib64"):
            (bundle / "rootfs" / link).symlink_to(f"usr/{link}")
        (bundle / "rootfs" / "usr").mkdir()
        _run("crun", "spec", cwd=bundle)()
        spec = json.loads((bundle / "config.json").read_text())
        spec["process"] |= {"args": [_TRUE], "terminal": False}
        spec["process"].pop("rlimits", None)
        spec["mounts"].append(
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}
        )
        (bundle / "config.json").write_text(json.dumps(spec))
        run = ["crun", "--root", str(self._folder / "crun"), "run", "-b", str(bundle), "bench"]
        self.true["crun"] = self._command(run)

    def _podman(self) -> None:
        base = ["podman", "--root", str(self._folder / "pod"), "--cgroup-manager", "cgroupfs"]
        base += ["--runroot", str(self._folder / "podrun"), "--events-backend", "none"]
        _run(*base, "import", "--change", f"CMD={_TRUE}", str(self._image()), "bench")()
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        run = [*base, "run", "--rm", "--network", "none", *limits, "bench", _TRUE]
        self.slow["podman"] = self._command(run)

    def _docker(self) -> None:
        """With a separate daemon, socket and folders; the daemon is stopped at the end."""
        socket = f"unix://{self._folder}/docker.sock"
        words = ["dockerd", "-H", socket, "--data-root", str(self._folder / "docker")]
        words += [
            "--exec-root",
            str(self._folder / "dockerrun"),
            "--bridge=none",
            "--iptables=false",
        ]
        words += ["--pidfile", str(self._folder / "docker.pid")]
        log = open(self._folder / "dockerd", "w+")  # noqa: SIM115
        daemon = subprocess.Popen(words, stdout=log, stderr=log, text=True)
        self._processes.append(daemon)
        base = ["docker", "-H", socket]
        until = time.monotonic() + 20
        while _refused(*base, "version"):
            if daemon.poll() is not None or time.monotonic() > until:
                log.seek(0)
                raise RuntimeError(f"its daemon does not answer: {log.read()[-200:].strip()}")
            time.sleep(0.2)
        _run(*base, "import", str(self._image()), "bench")()
        self.slow["docker"] = self._checked(
            _run(*base, "run", "--rm", "--network", "none", "bench", _TRUE, wait_s=60)
        )

    def _command(self, words: list[str]) -> Contender:
        """Run in a mount namespace with one version of cgroups."""
        loop = (
            "import subprocess\n"
            f"def true(): subprocess.run({words!r}, capture_output=True, check=True)\n" + _LOOP
        )
        inside = ["unshare", "-m", "sh", "-c", _ONE_VERSION, "sh", sys.executable, "-c", loop]
        process, _ = self._helper(inside)
        return _asking(process, "true")

    def _checked(self, contender: Contender) -> Contender:
        contender()
        return contender

    def _image(self) -> Path:
        """/bin/true and the libraries it is linked to."""
        image = self._folder / "image.tar"
        if not image.exists():
            needed = subprocess.run(["ldd", _TRUE], capture_output=True, text=True, check=True)
            files = [_TRUE, *(word for word in needed.stdout.split() if word.startswith("/"))]
            with tarfile.open(image, "w") as tar:
                for file in files:
                    tar.add(os.path.realpath(file), arcname=file.lstrip("/"))
        return image

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            if process.poll() is None:
                process.kill()
                process.wait()


@contextlib.contextmanager
def peers() -> Iterator[Peers]:
    folder = Path(tempfile.mkdtemp(prefix="actum-peers-"))
    found = Peers(folder)
    try:
        found.prepare()
        yield found
    finally:
        found.close()
        # The mounts of container engines come first: removal must not follow them.
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(folder)):
                _refused("umount", "-l", line.split()[1])
        shutil.rmtree(folder, ignore_errors=True)


def with_package(name: str) -> str:
    """A Python that has this package, from the environment of the peers; installs it first."""
    python = _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        _run(sys.executable, "-m", "venv", str(_ENVIRONMENT))()
    if _refused(str(python), "-m", "pip", "show", "-q", name):
        _run(str(python), "-m", "pip", "install", "-q", "--no-input", name, wait_s=120)()
    return str(python)


def _install_debian() -> None:
    missing = [package for name, package in _DEBIAN.items() if not shutil.which(name)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        for package in missing:
            words = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
            with contextlib.suppress(subprocess.TimeoutExpired):  # then it is left out
                subprocess.run(words, capture_output=True, timeout=180, check=False)


def _run(*words: str, cwd: Path | None = None, wait_s: float = 30) -> Contender:
    return lambda: subprocess.run(words, capture_output=True, check=True, cwd=cwd, timeout=wait_s)


def _refused(*words: str) -> bool:
    return bool(subprocess.run(words, capture_output=True, check=False).returncode)


def _asking(process: subprocess.Popen[str], what: str) -> Contender:
    def ask() -> None:
        assert process.stdin is not None
        process.stdin.write(what + "\n")
        if not _out(process).readline():
            raise RuntimeError("the peer ended")

    return ask


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        written = error.stderr or b""
        text = written.decode(errors="replace") if isinstance(written, bytes) else written
        return text.strip().rpartition("\n")[2][:200] or f"exit code {error.returncode}"
    return str(error)[:200]


if __name__ == "__main__":
    from measured import interleaved

    with peers() as found:
        print(json.dumps({"left_out": found.left_out}, indent=1))
        print(json.dumps(interleaved({"bare": _run(_TRUE), **found.true}, 5), indent=1))
        print(json.dumps(interleaved(found.snippet, 3), indent=1))
        print(json.dumps(interleaved(found.slow, 2), indent=1))
