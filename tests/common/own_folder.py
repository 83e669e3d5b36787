"""A folder that only the caller and root can write, and no directory above it another: not /tmp."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_folder() -> Iterator[Path]:
    # `scripts/as-user` makes one for the ordinary user; root makes its own.
    parent = os.environ.get("ACTUM_OWN_FOLDER") or ("/home" if os.geteuid() == 0 else Path.home())
    folder = Path(tempfile.mkdtemp(prefix="actum-test-", dir=parent)).resolve()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
