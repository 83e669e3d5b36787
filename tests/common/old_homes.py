"""Homes as older versions left them, kept as text."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

_KEPT = Path(__file__).resolve().parent.parent / "migration" / "data"


def old_home(schema: int, folder: Path) -> Path:
    """The home of that schema, made in `folder`."""
    made = folder / ".actum"
    shutil.copytree(_KEPT / f"schema-{schema}", made)
    made.chmod(0o700)
    for private in (made / "keys").glob("*.key"):
        private.chmod(0o600)
    connection = sqlite3.connect(made / "actum.db")
    connection.executescript((made / "actum.sql").read_text())
    connection.close()
    (made / "actum.sql").unlink()
    return made
