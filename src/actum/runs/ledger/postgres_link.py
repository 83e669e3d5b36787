"""Connections to the PostgreSQL database of a fleet. The only module that imports psycopg.

Work is retried while the connection is lost, for as long as `patience_s`: a database that restarts
is no error. A lost COMMIT is the work's own question (`postgres_store`).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from actum.errors import ActumError, EvidenceUnavailable, Refused
from actum.runs.ledger.ledger_store import StoreUnreachable

T = TypeVar("T")
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_AGAIN_S = 0.2
_CONNECT_S = 10
#: A peer that is gone is noticed within some 15 seconds, also while a statement waits.
_ALIVE = {"keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3}
_TCP_USER_TIMEOUT_MS = 15_000
#: FATAL messages of a server that accepts connections again soon.
_SOON = ("the database system is", "terminating connection", "too many", "remaining connection")
_NOT_READY = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedFunction)
LOST_CONNECTION = (psycopg.OperationalError, psycopg.InterfaceError)


class PostgresLink:
    """The connections of one process to one database, for any number of threads."""

    def __init__(
        self,
        url: str,
        *,
        home: str,
        password: Callable[[], str | None] = lambda: None,
        patience_s: float = 10.0,
    ) -> None:
        self.url = url
        self.home = home  #: name of this project's audit log; marks the folders that are here
        self._password = password
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._finalizer = weakref.finalize(self, _close_all, self._idle)

    def close(self) -> None:
        self._finalizer()

    def run(self, work: Callable[[Connection], T]) -> T:
        """Call `work` with a connection in autocommit mode; again if the connection is lost."""
        until = None
        while True:
            try:
                with self.session() as connection:
                    return work(connection)
            except psycopg.Error as error:
                now = time.monotonic()
                until = now + self._patience_s if until is None else until
                if not _is_lost(error) or now > until:
                    raise self._fault(error) from error
                self._drop_idle()
                time.sleep(_AGAIN_S)

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """One connection. Raises the errors of psycopg."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self.connect()
        try:
            yield connection
        finally:
            status = connection.info.transaction_status
            if connection.closed or status is not psycopg.pq.TransactionStatus.IDLE:
                connection.close()
            else:
                with self._lock:
                    self._idle.append(connection)

    def connect(self) -> Connection:
        return psycopg.connect(self.url, autocommit=True, **self.parameters())

    def parameters(self) -> dict[str, Any]:
        """What every connection is opened with, beside the address."""
        password = self._password()
        return {
            **_ALIVE,
            "tcp_user_timeout": _TCP_USER_TIMEOUT_MS,
            "connect_timeout": _CONNECT_S,
            "application_name": "actum",
            "client_encoding": "utf8",
            "options": f"-c search_path=actum,pg_catalog -c actum.home={self.home}",
            **({} if password is None else {"password": password}),
        }

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.run(lambda connection: rows_of(connection, sql, parameters))

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self.run(lambda connection: executed(connection, sql, parameters))

    @contextmanager
    def turn(self, key: int) -> Iterator[bool]:
        """Whether this process alone holds the lock `key`, for as long as the block takes. False,
        too, if the database does not answer; an answer that is missing ends the block quietly."""
        asked = False
        with suppress(StoreUnreachable, *LOST_CONNECTION), self.session() as connection:
            ((mine,),) = rows_of(connection, "SELECT pg_try_advisory_lock(?)", (key,))
            asked = True
            try:
                yield mine
            finally:
                if mine:
                    rows_of(connection, "SELECT pg_advisory_unlock(?)", (key,))
        if not asked:
            yield False

    @contextmanager
    def listening(self, channel: str) -> Iterator[Listener]:
        listener = Listener(self, channel)
        try:
            listener.wait(0.0)  # connects: what changes from here on is heard
            yield listener
        finally:
            listener.close()

    def _drop_idle(self) -> None:
        with self._lock:
            _close_all(self._idle)

    def _fault(self, error: psycopg.Error) -> ActumError:
        said = " ".join(str(error).split())[:500]
        where = place_of(self.url)
        if isinstance(error, errors.InsufficientPrivilege):
            return Refused(
                "RUNS_STORE_DENIED",
                f"runs.store: {where} refuses this to its user: {said}",
                remedy="Nothing was changed. Its owner grants the roles actum_read, actum_submit"
                " and actum_worker (docs/fleet.md).",
            )
        if isinstance(error, _NOT_READY):
            return Refused(
                "RUNS_STORE_NOT_READY",
                f"runs.store: {where} shows its user no ledger of this version: {said}",
                remedy="Nothing was changed. The owner of the database runs `actum fleet migrate`,"
                " and grants the user actum_read, actum_submit or actum_worker.",
            )
        if isinstance(error, psycopg.OperationalError) and not _is_lost(error):
            return Refused(
                "RUNS_STORE_DENIED",
                f"runs.store: {where} refuses the connection: {said}",
                remedy="Nothing was changed. Check user and database in actum.toml, and the"
                " password: in PGPASSFILE or ~/.pgpass, or the secret that [runs] password names.",
            )
        kind = StoreUnreachable if isinstance(error, LOST_CONNECTION) else EvidenceUnavailable
        return kind(
            f"runs.store: {where} cannot be used: {said}",
            remedy="Check that the server runs and that its address, user and password are right"
            " (docs/fleet.md).",
        )


class Listener:
    """Hears the notifications of one channel; connects again after a lost connection."""

    def __init__(self, link: PostgresLink, channel: str) -> None:
        self._link = link
        self._channel = channel
        self._connection: Connection | None = None

    def wait(self, most_s: float) -> None:
        """Until a notification, or for `most_s` seconds; at once after a new connection."""
        try:
            if self._connection is None:
                self._connection = self._link.connect()
                self._connection.execute(f'LISTEN "{self._channel}"'.encode())
                return
            for _ in self._connection.notifies(timeout=most_s, stop_after=1):
                pass
        except LOST_CONNECTION:
            self.close()
            time.sleep(min(most_s, _AGAIN_S))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def rows_of(connection: Connection, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    return connection.execute(_text(sql), _plain(parameters)).fetchall()


def executed(connection: Connection, sql: str, parameters: Sequence[Any]) -> int:
    return connection.execute(_text(sql), _plain(parameters)).rowcount


def run_script(connection: Connection, sql: str) -> None:
    """Several statements, with no parameters."""
    connection.execute(sql.encode())


def place_of(url: str) -> str:
    """The address for people: never the password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "the database"
    host, port = parts.get("host", "localhost"), parts.get("port", 5432)
    return f"postgresql://{host}:{port}/{parts.get('dbname', '')}"


def _text(sql: str) -> bytes:
    # The statements of the ledger hold neither ? nor % but as a parameter.
    return sql.replace("?", "%s").encode()


def _plain(parameters: Sequence[Any]) -> tuple[Any, ...]:
    # psycopg stores an enum by its name.
    return tuple(each.value if isinstance(each, StrEnum) else each for each in parameters)


def _is_lost(error: psycopg.Error) -> bool:
    if not isinstance(error, LOST_CONNECTION):
        return False
    said = str(error)
    return "FATAL:" not in said or any(each in said for each in _SOON)


def _close_all(idle: list[Connection]) -> None:
    while idle:
        idle.pop().close()
