"""The address of the ledger of runs, as `[runs] store` of actum.toml names it."""

from __future__ import annotations

EMBEDDED = "embedded"
PERMITTED = (
    '"embedded", or "postgresql://USER@HOST:PORT/DATABASE"; the password is in PGPASSFILE or in'
    " ~/.pgpass, or [runs] password names a secret of [secrets]"
)
_SCHEMES = ("postgresql", "postgres")
#: Parameters of the address that Actum sets itself, or that belong elsewhere.
_NOT_HERE = ("options", "password", "passfile", "sslpassword")


def problem_with(store: str) -> str:
    """Why `store` cannot be used; empty if it can. Never repeats it: it may hold a password."""
    if store == EMBEDDED:
        return ""
    from urllib.parse import parse_qs, urlsplit  # most projects have no such address

    try:
        parts = urlsplit(store)
        has_password = parts.password is not None
        given = parse_qs(parts.query, keep_blank_values=True)
    except ValueError:
        return "is no address"
    if parts.scheme not in _SCHEMES:
        return "is neither embedded nor the address of a PostgreSQL database"
    if has_password or "password" in given:
        return "holds a password; other users read actum.toml and the arguments of processes"
    wrong = sorted(set(_NOT_HERE).intersection(given))
    if wrong:
        return f"has the parameter {wrong[0]}, which does not belong there"
    if len(parts.path) < 2 or "/" in parts.path[1:]:
        return "names no database"
    return ""
