"""A PostgreSQL server for tests: Debian's, started here as an ordinary user and gone afterwards."""

from __future__ import annotations

from postgres.server import Server, program

__all__ = ["Server", "program"]
