"""The local runner's helper, started before the runner itself is imported.

It needs as long to start as the pipeline to be imported, and there is a second core. It is given
no work here: whoever ends without using it closes its socket, and it leaves.
"""

from __future__ import annotations

from actum.sandbox.host import Spawner

__all__ = ["Spawner", "start_spawner"]


def start_spawner() -> Spawner:
    spawner = Spawner()
    spawner.start()
    return spawner
