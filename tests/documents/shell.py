"""One bash for a whole page: `cd`, variables and background jobs live from block to block."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
import uuid
from pathlib import Path

_DEADLINE_S = 180


class Shell:
    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["/bin/bash", "--norc", "--noprofile"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.set_blocking(self._out, False)
        self._code = 0  #: of the last command, which the next one may ask for

    @property
    def _out(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def run(self, command: str) -> tuple[int, str]:
        """The exit code, and both streams in the order in which they were written."""
        assert self._process.stdin is not None
        end = f"end-{uuid.uuid4()}"
        # Without a redirection a command would read the commands that follow it.
        typed = f"{{ (exit {self._code}); eval {_quoted(command)}\n}} </dev/null 2>&1"
        script = f"{typed}\nprintf '\\n{end} %d\\n' $?\n"
        self._process.stdin.write(script.encode())
        self._process.stdin.flush()
        printed, deadline = b"", time.monotonic() + _DEADLINE_S
        while f"\n{end} ".encode() not in printed or not printed.endswith(b"\n"):
            left = deadline - time.monotonic()
            assert left > 0, (
                f"{command!r} did not end; it printed: {printed.decode(errors='replace')}"
            )
            if select.select([self._out], [], [], left)[0]:
                more = os.read(self._out, 65536)
                assert more, f"{command!r} ended the shell: {printed.decode(errors='replace')}"
                printed += more
        text, _, code = printed.decode(errors="replace").rpartition(f"\n{end} ")
        self._code = int(code)
        return self._code, text

    def folder(self) -> Path:
        return Path(os.readlink(f"/proc/{self._process.pid}/cwd"))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        # The group before the shell is reaped: until then its id is not given to another.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._process.stdin.close()
        self._process.stdout.close()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
