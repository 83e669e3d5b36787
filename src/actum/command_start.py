"""First steps of a command: read the settings, start the spawner while the rest is imported.

A long-lived program opens a `Runtime` and waits once; a command waits every time.
"""

from __future__ import annotations

import os
from pathlib import Path

from actum import settings as project
from actum.contract.model import RunnerKind
from actum.runners.spawner_start import Spawner, start_spawner
from actum.settings import Settings
from actum.value import value


@value
class Begun:
    settings: Settings
    spawner: Spawner | None  #: ``None``: this project does not run tools on this host


def begin(*, home: Path | None) -> Begun:
    """Begin in the named project, or in the one that holds the working directory."""
    settings = project.load(project.discover(Path.cwd().resolve(), home), os.environ)
    if RunnerKind.LOCAL not in settings.runners:
        return Begun(settings=settings, spawner=None)
    return Begun(settings=settings, spawner=start_spawner())
