"""One PostgreSQL server in a folder of its own, on a free port of the loopback interface.

PostgreSQL refuses to run as root, so root starts it as Debian's user `postgres`. The kernel ends
the server when the process that started it dies, however that happens.
"""

from __future__ import annotations

import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psycopg

_USER = "postgres"
_WAIT_S = 120.0


def program(name: str) -> Path | None:
    """A program of the newest PostgreSQL of this host; Debian keeps most of them out of PATH."""
    found = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4])
    )
    return found[-1] if found else None


class Server:
    def __init__(self) -> None:
        # Not pytest's folder: another user could not enter it.
        self.folder = Path(tempfile.mkdtemp(prefix="actum-postgres-"))
        self._owner = _as_this_user() if os.geteuid() else _as_user()
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        if os.geteuid() == 0:
            shutil.chown(self.folder, _USER, _USER)
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.remove()
            raise

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, database: str = "postgres", user: str = "admin") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def database(self, template: str = "template1") -> str:
        """The address of a new database, as its owner: a copy of `template`."""
        name = f"fleet{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def execute(self, sql: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(sql.encode())

    def start(self) -> None:
        command = [*self._owner, "setpriv", "--pdeathsig", "QUIT", str(program("postgres"))]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, "-D", str(self.data)], stdout=subprocess.DEVNULL, stderr=log
            )
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.05)
            else:
                return

    def stop(self, *, immediate: bool = False) -> None:
        """As `pg_ctl stop -m immediate`, which is a crash to the database, or `-m fast`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self._process.wait(_WAIT_S)
            self._process = None

    def restart(self, *, away_s: float = 0.0) -> None:
        self.stop(immediate=True)
        time.sleep(away_s)
        self.start()

    def remove(self) -> None:
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _initialise(self) -> None:
        options = ["--username=admin", "--auth=trust", "--no-sync", "--encoding=UTF8"]
        subprocess.run(
            [*self._owner, str(program("initdb")), "-D", str(self.data), *options],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        access = self.data / "pg_hba.conf"
        # One login has a password, for tests of where it comes from.
        rule = "host all locked 127.0.0.1/32 scram-sha-256\n"
        access.write_text(rule + access.read_text(encoding="utf-8"), encoding="utf-8")
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as file:
            # Values with dots or slashes need quotes.
            file.write(
                f"listen_addresses = '127.0.0.1'\nport = {self.port}\n"
                f"unix_socket_directories = '{self.folder}'\nmax_connections = 200\n"
                "shared_buffers = '32MB'\n"
                # A server that stops waits for a client that has connected and says nothing.
                "authentication_timeout = 5s\n"
            )


def _as_user() -> list[str]:
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]


def _as_this_user() -> list[str]:
    """initdb wants a name for its user; a number without one takes that of Debian's user inside a
    user namespace of its own."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        named = pwd.getpwnam(_USER)
        return ["unshare", "--user", f"--map-user={named.pw_uid}", f"--map-group={named.pw_gid}"]
    return []


def _free_port() -> int:
    """Not one that the kernel gives to clients: while the server is away, a client that connects
    again and again would get it, and be connected with itself."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        lowest = int(file.read().split()[0])
    while True:
        port = random.randint(10_000, lowest - 1)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
