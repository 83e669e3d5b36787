"""The database of a fleet, migrated, with a login for each role."""

from __future__ import annotations

from typing import Any

import psycopg

from actum.runs.dispatch.engine_schema import engine_schema
from actum.runs.ledger.fleet_schema import migrate
from actum.runs.ledger.postgres_link import PostgresLink
from postgres.server import Server

LOGINS = {
    "alice": "actum_submit",
    "bob": "actum_submit",
    "reader": "actum_read",
    "carrier": "actum_worker",
}


#: A migrated database of each server, which others are copied from.
_TEMPLATES: dict[Server, str] = {}


def _migrated(server: Server) -> str:
    url = server.database()
    link = PostgresLink(url, home="owner")
    assert migrate(link, engine_schema()) == 1
    for login, role in LOGINS.items():
        link.execute(f"CREATE ROLE {login} LOGIN")
        link.execute(f"GRANT {role} TO {login}")
    link.close()
    return url.rpartition("/")[2]


class Fleet:
    def __init__(self, server: Server) -> None:
        self.server = server
        if server not in _TEMPLATES:
            _TEMPLATES[server] = _migrated(server)
        self.url = server.database(_TEMPLATES[server])

    def url_of(self, login: str) -> str:
        return self.url.replace("admin@", f"{login}@")

    def execute(self, sql: str, login: str = "admin") -> list[tuple[Any, ...]]:
        options = "-c search_path=actum -c actum.home=test"
        with psycopg.connect(self.url_of(login), autocommit=True, options=options) as connection:
            found = connection.execute(sql.encode())
            return found.fetchall() if found.description else []

    def table(self, name: str) -> list[dict[str, Any]]:
        options = "-c search_path=actum"
        with psycopg.connect(self.url, options=options) as connection:
            found = connection.execute(f"SELECT * FROM {name}".encode())
            columns = [column.name for column in found.description or ()]
            return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
