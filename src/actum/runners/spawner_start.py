"""Starts the local runner's spawner before the runner itself is imported.

The start of the spawner takes as long as the import of the pipeline, on another processor. It gets
no work here. If its starter ends without using it, the spawner reads end-of-file and exits.
"""

from __future__ import annotations

from actum.sandbox.spawner_client import Spawner

__all__ = ["Spawner", "start_spawner"]


def start_spawner() -> Spawner:
    spawner = Spawner()
    spawner.start()
    return spawner
