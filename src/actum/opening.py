"""The first steps of one command: settings, and a spawner that starts while the rest is imported.

Long-lived programs open a `Runtime` and wait once; a command waits every time.
"""

from __future__ import annotations

import os
from pathlib import Path

from actum import settings as project
from actum.contract.model import RunnerKind
from actum.runners.early import Spawner, start_spawner
from actum.settings import Settings
from actum.value import value


@value
class Begun:
    settings: Settings
    spawner: Spawner | None  #: ``None``: this project does not run tools on this host


def begin(*, home: Path | None) -> Begun:
    """The project that the working directory lies in, or the one that is named."""
    settings = project.load(project.discover(Path.cwd().resolve(), home), os.environ)
    if RunnerKind.LOCAL not in settings.runners:
        return Begun(settings=settings, spawner=None)
    return Begun(settings=settings, spawner=start_spawner())
