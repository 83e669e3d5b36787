"""The HTTP interface of a container engine, Docker or Podman, over its unix socket.

Only for making and removing containers: streams, endings and limits do not pass the engine. An
answer is untrusted: bounded in size and time, and compared with what the kernel says inside.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

from actum.value import value

#: An engine that answers later does not answer. A cold start of a container takes 0.3 s.
ANSWER_S = 30.0
_MOST_BYTES = 8 << 20
#: What this module is written for; a newer engine that no longer offers it is asked for its oldest.
_VERSION = (1, 41)


class EngineError(Exception):
    """The engine could not be reached, answered with an error, or with garbage."""

    def __init__(self, message: str, remedy: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.status = status


@value
class EngineInfo:
    """What an engine says about itself."""

    name: str  #: docker or podman
    version: str
    rootless: bool
    remaps_users: bool
    runtimes: tuple[str, ...]


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Map the errors of reading an answer that has another form than the API says."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise EngineError(
            f"{what}: the engine answered in another form than that of the Engine API"
            f" ({type(error).__name__}: {error})",
            "Look at the engine's log, and restart it.",
        ) from error


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        _require_trusted(self._path, self.sock)


def _require_trusted(path: str, peer: socket.socket) -> None:
    """An engine makes mounts of this host. One of another user, at a path or a link that this user
    can make, gets no request."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", credentials)
    if uid not in (0, os.geteuid()):
        raise EngineError(
            f"{path} is answered by user {uid}, not by root or you",
            "Name the socket of an engine of root's, or of your own, as `host` under [docker] in"
            " actum.toml.",
        )


class Engine:
    """One engine. A connection per call: calls are few, and threads share nothing."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _version(self) -> tuple[str, dict[str, Any]]:
        found = self._exchange("GET", "/version")[1]
        lowest, highest = _numbers(found, "MinAPIVersion"), _numbers(found, "ApiVersion")
        chosen = max(lowest, min(highest, _VERSION))
        return f"/v{chosen[0]}.{chosen[1]}", found

    @cached_property
    def info(self) -> EngineInfo:
        found, about = self._version[1], self.call("GET", "/info")
        with understood("GET /info"):
            parts = " ".join(str(part.get("Name", "")) for part in found.get("Components") or ())
            options = " ".join(map(str, about.get("SecurityOptions") or ()))
            return EngineInfo(
                name="podman" if "podman" in parts.lower() else "docker",
                version=str(found.get("Version", "")),
                rootless="rootless" in options,
                remaps_users="userns" in options,
                runtimes=tuple(map(str, about.get("Runtimes") or ())),
            )

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        allowed: tuple[int, ...] = (),
        wait_s: float | None = None,
        **query: str,
    ) -> Any:
        """The document of the answer; ``None`` for an answer without one, or with one of the
        `allowed` error codes."""
        address = f"{self._version[0]}{path}"
        if query:
            address += "?" + urlencode(query, quote_via=quote)
        status, document = self._exchange(method, address, body, wait_s)
        if status in allowed:
            return None
        if status >= 300:
            said = document.get("message", "") if isinstance(document, dict) else ""
            raise EngineError(f"{method} {path}: {status} {said[:500]}".rstrip(), status=status)
        return document

    def _exchange(
        self,
        method: str,
        address: str,
        body: Mapping[str, Any] | bytes | None = None,
        wait_s: float | None = None,
    ) -> tuple[int, Any]:
        connection = _Connection(self.path, ANSWER_S if wait_s is None else wait_s)
        content: bytes | None
        if isinstance(body, bytes):
            content, kind = body, "application/x-tar"
        else:
            content = None if body is None else json.dumps(body).encode()
            kind = "application/json"
        try:
            connection.request(method, address, content, {"Content-Type": kind})
            # After `Connection: close` the answer owns the socket, not the connection.
            with connection.getresponse() as response:
                text = response.read(_MOST_BYTES + 1)
        except FileNotFoundError as error:
            raise _absent(self.path) from error
        except PermissionError as error:
            raise EngineError(
                f"{self.path}: {error.strerror}",
                "Join the group of that socket (`sudo usermod -aG docker $USER`, then log in"
                " again), or run Actum as root.",
            ) from error
        except ConnectionRefusedError as error:
            raise _absent(self.path) from error
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(
                f"{self.path}: {method} {address.split('?')[0]}: {error or type(error).__name__}",
                "Look at the engine's log, and restart it.",
            ) from error
        finally:
            connection.close()
        if len(text) > _MOST_BYTES:
            raise EngineError(f"{self.path}: an answer of more than {_MOST_BYTES} bytes")
        return response.status, _document(self.path, text, response.status)


def _document(path: str, text: bytes, status: int) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # POST /images/create answers with one document per line.
        lines = text.splitlines()
        if status < 400 and len(lines) > 1:
            try:
                return [json.loads(line) for line in lines if line.strip()]
            except (ValueError, RecursionError):
                pass
        if status >= 400:
            return {"message": text[:200].decode(errors="replace")}
        raise EngineError(f"{path}: an answer that is no JSON document") from error


def _numbers(found: Any, name: str) -> tuple[int, int]:
    try:
        major, minor = str(found[name]).split(".")[:2]
        return int(major), int(minor)
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"the engine names no {name}: it is neither Docker nor Podman") from error


def _absent(path: str) -> EngineError:
    return EngineError(
        f"no container engine answers at {path}",
        f"{_start_one()}, or name its socket as `host` under [docker] in actum.toml.",
    )


def _start_one() -> str:
    found = {"dockerd": "docker", "podman": "podman.socket"}
    units = [unit for program, unit in found.items() if shutil.which(program, path=_PROGRAMS)]
    if not units:
        return "Install one (`sudo apt-get install docker.io`, or `podman`) and start it"
    commands = " or ".join(f"`sudo systemctl start {unit}`" for unit in units)
    return f"Start the one that is installed ({commands})"


def socket_of(host: str) -> str:
    """The path of `[docker] host`, which is a path or unix://PATH."""
    return host.removeprefix("unix://")


#: Also for a user whose PATH has no folder of root's.
_PROGRAMS = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"))
#: Where engines listen by default, the first that exists is used.
_USUAL = ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock")


def usual_socket() -> str:
    own = f"/run/user/{os.geteuid()}"
    usual = (*_USUAL, f"{own}/docker.sock", f"{own}/podman/podman.sock")
    return next((path for path in usual if os.path.exists(path)), _USUAL[0])
