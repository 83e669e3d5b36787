"""Containers that dead processes have left at an engine, found by a label with their owner.

The init of a container ends when its host is gone, and the engine then removes the container. What
is left is what an engine could not remove, or had not started yet.
"""

from __future__ import annotations

import json
import os
import re

from actum.evidence.owner import is_alive
from actum.runners.container.container_config import OWNER_LABEL, USER_LABEL
from actum.runners.container.engine_api import Engine, EngineError
from actum.runners.container.started_container import remove_container


def remove(engine: Engine) -> tuple[str, ...]:
    """Remove the containers of dead processes; returns their ids. An engine that does not answer
    has none that can be removed now."""
    # Root sees every process. Others may not (`hidepid`), and would take a living one for dead.
    uid = os.geteuid()
    mine = [] if uid == 0 else [f"{USER_LABEL}={uid}"]
    filters = json.dumps({"label": [OWNER_LABEL, *mine]})
    try:
        found = engine.call("GET", "/containers/json", all="1", filters=filters)
    except EngineError:
        return ()
    removed = []
    for each in found if isinstance(found, list) else ():
        try:
            lives, container = is_alive(each["Labels"][OWNER_LABEL]), str(each["Id"])
        except (KeyError, TypeError, ValueError):
            continue  # not ours
        if not lives and re.fullmatch("[0-9a-f]{64}", container):
            if not remove_container(engine, container):
                break  # an engine that does not answer is not asked again for each
            removed.append(container)
    return tuple(removed)
