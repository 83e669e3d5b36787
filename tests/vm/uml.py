"""User-mode Linux: a kernel that is a program. No Landlock, one CPU, no root needed to run it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

from . import packages
from .machine import Answer, NoAnswer, Processes, preparation

_WHOLE_XSTATE = Path(__file__).with_name("whole_xstate.c")


def run(command: list[str], *, deadline_s: float) -> Answer:
    root = packages.unpack("user-mode-linux", "busybox-static")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="actum-uml-") as name, Processes(Path(name)) as host:
        folder = Path(name)
        start = folder / "start"
        busybox = root / "bin" / "busybox"
        start.write_text(
            "#!/bin/sh\n"
            f"answer=/tmp/answer busybox={busybox}\n"
            f"{preparation()}"
            f"mkdir $answer && mount -t hostfs -o {folder} none $answer\n"
            f"{shlex.join(command)} >$answer/output 2>&1 </dev/null\n"
            "echo $? >$answer/code\n"
            "$busybox poweroff -f\n"
        )
        start.chmod(0o755)
        preloaded = folder / "whole_xstate.so"
        compiler = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(preloaded), str(_WHOLE_XSTATE)]
        subprocess.run(compiler, check=True, timeout=60)
        host.start(
            "console",
            [
                str(root / "usr" / "bin" / "linux.uml"),
                "mem=512M",
                "root=/dev/root",
                "rootfstype=hostfs",
                "hostfs=/",
                "ro",
                "quiet",
                f"init={start}",
                f"uml_dir={folder}",
                "con=null",
                "con0=null,fd:1",
            ],
            {
                "PATH": os.defpath,
                "HOME": name,
                "TMPDIR": name,
                "LD_PRELOAD": str(preloaded),
            },
        )
        host.wait(began + deadline_s)
        code = folder / "code"
        if not code.exists():
            raise NoAnswer(host.logs())
        return Answer(
            code=int(code.read_text()),
            output=(folder / "output").read_text(errors="replace"),
            seconds=time.monotonic() - began,
        )
