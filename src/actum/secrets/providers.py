"""Gets the value of a secret from its source, on the host and on the operator's behalf.

A provider command is not a tool: it runs unconfined, as the operator, like the shell that started
Actum. So a person has approved it (actum.toml), no tool and no other user could have changed its
program (`host_program`), and its time and output are bounded.
Nothing is cached: a secret is fetched for one start and dropped with it.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Iterable, Mapping

from actum import kernel
from actum.secrets.host_program import Ready, judged, safe_environment
from actum.secrets.sources import (
    FromCommand,
    FromEnvironment,
    FromFile,
    FromKeyring,
    Source,
    Unavailable,
)

#: Of a value; the redaction window of each stream is several times this.
MOST_BYTES = 32_768
#: A shorter one would occur everywhere in the output, and its digest could be guessed.
FEWEST_BYTES = 4
_COMMAND_S = 10.0


def require_usable(
    source: Source, environment: Mapping[str, str], project: str, writable: Iterable[str] = ()
) -> None:
    """Raise `Unavailable` if `fetch` would fail. Starts no process."""
    if isinstance(source, FromCommand):
        with judged(source.argv, environment, (project, *writable)):
            return
    fetch(source, environment, project, writable)


def fetch(
    source: Source, environment: Mapping[str, str], project: str, writable: Iterable[str] = ()
) -> bytes:
    """The value, without the trailing line end that editors and `echo` write.

    `writable` are the paths outside `project` that tools may write.
    """
    match source:
        case FromEnvironment(variable):
            if variable not in environment:
                raise Unavailable(f"the environment variable {variable} is not set")
            value = os.fsencode(environment[variable])
        case FromFile(path):
            value = _of_file(path, project)
        case FromCommand(argv):
            untrusted = (project, *writable)
            with judged(argv, environment, untrusted) as ready:
                value = _of_command(ready, safe_environment(environment, untrusted))
        case FromKeyring(description):
            value = _of_keyring(description)
    value = value.removesuffix(b"\n").removesuffix(b"\r")
    if not FEWEST_BYTES <= len(value) <= MOST_BYTES:
        raise Unavailable(f"its value is not {FEWEST_BYTES} to {MOST_BYTES} bytes long")
    return value


def _of_file(path: str, project: str) -> bytes:
    real = os.path.realpath(path)
    inside = os.path.join(project, ".actum") + "/"
    if project and real.startswith(project + "/") and not real.startswith(inside):
        raise Unavailable(f"{path} is in the project, where tools can read it")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Unavailable(f"{path} is not a regular file")
        if found.st_uid not in (os.geteuid(), 0):
            raise Unavailable(f"{path} belongs to uid {found.st_uid}")
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise Unavailable(f"{path} is open to others (mode {mode:04o}); chmod 600 it")
        return os.read(descriptor, MOST_BYTES + 3)
    finally:
        os.close(descriptor)


def _of_keyring(description: str) -> bytes:
    try:
        return kernel.read_user_key(description, MOST_BYTES + 3)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise Unavailable(f"the kernel key {description!r}: {reason}") from error


def _of_command(ready: Ready, environment: Mapping[str, str]) -> bytes:
    """Its standard output. Its standard error may contain the value and is not read."""
    try:
        process = subprocess.Popen(
            ready.argv,
            executable=ready.executable,
            pass_fds=ready.descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"{ready.argv[0]}: {error.strerror}") from error
    with process:
        try:
            value = _read(process, time.monotonic() + _COMMAND_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise Unavailable(f"{ready.argv[0]} ended with {process.returncode}")
    return value


def _read(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    output, value = process.stdout, bytearray()
    assert output is not None  # noqa: S101 -- stdout is a pipe
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while len(value) <= MOST_BYTES + 2:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise Unavailable(f"the command did not answer within {_COMMAND_S:.0f} s")
        part = os.read(output.fileno(), 4_096)
        if not part:
            break
        value += part
    else:
        raise Unavailable(f"the command wrote more than {MOST_BYTES} bytes")
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"the command did not end within {_COMMAND_S:.0f} s") from error
    return bytes(value)
