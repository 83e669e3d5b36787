"""The schema of Procrastinate, the queue of a fleet, as its package ships it.

Read as a file: the command that migrates needs no worker.
"""

from __future__ import annotations

from importlib import resources


def engine_schema() -> str:
    return (resources.files("procrastinate.sql") / "schema.sql").read_text(encoding="utf-8")
