"""A project with the tools the measurements need: /bin/true behind a contract."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.store.keys import Keyring

#: The shell runs a program on stdin, and /bin/true none.
_PROGRAM = re.compile(r"(    #.*\n)?    program:\n(      .*\n)*")


@contextmanager
def project() -> Iterator[Path]:
    """A project directory with the shipped tools and `true`; removed afterwards."""
    root = Path(tempfile.mkdtemp(prefix="actum-bench-"))
    date = datetime.now(UTC).date().isoformat()
    try:
        create(root, RunnerKind.LOCAL, by="user:bench", date=date)
        shell, nothing = root / "tools" / "shell", root / "tools" / "nothing"
        shutil.copytree(shell, nothing)
        for file in (nothing / "tool.yaml", *(nothing / "adapters").iterdir()):
            text = file.read_text()
            for old, new in (
                ("TL-010", "TL-900"),
                ("ADP-011", "ADP-900"),
                ("name: shell", "name: nothing"),
                ("executable: sh", "executable: /bin/true"),
                ("    - sh\n", "    - /bin/true\n"),
                ('base_args: ["-s", "--"]', "base_args: []"),
            ):
                text = text.replace(old, new)
            file.write_text(_PROGRAM.sub("", text))
        approve(root, Keyring.open(root / ".actum"), "nothing", by="b", evidence="bench", date=date)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
