"""What a tool leaves in a throwaway project is removed by us, and by the next who comes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from actum import Runtime

pytestmark = pytest.mark.sandbox

_LEFT = {
    "very deep folders": "for _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')",
    "folders that cannot be entered": "os.makedirs('a/b'); open('a/b/f', 'w')\n"
    "os.chmod('a/b', 0o100); os.chmod('a', 0)",
    "links to elsewhere": "os.symlink(elsewhere, 'a'); os.mkdir('b'); os.symlink(elsewhere, 'b/c')",
    "a project that cannot be entered": "os.chmod('..', 0)",
    "odd names": "os.makedirs(b'\\xff/\\n/ '); open(b'\\xff/\\n/-rf', 'w'); os.mkfifo('p')",
}


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"actum-{os.geteuid()}"


@pytest.mark.parametrize("what", _LEFT)
@pytest.mark.parametrize("crashed", [False, True])
def test_nothing_that_a_tool_leaves_in_a_throwaway_home_outlives_it(
    homes: Path, tmp_path: Path, what: str, crashed: bool
) -> None:
    """A folder that kills its remover would end every later start of this user."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    with Runtime.temporary(pool=False) as runtime:
        root = runtime.settings.root
        (root / "work").mkdir()
        program = f"import os\nelsewhere = {str(elsewhere)!r}\n{_LEFT[what]}\nprint('made')"
        # In the project's root, so that the tool may touch that too.
        result = runtime.exec("python", stdin=f"import os; os.chdir('work')\n{program}", cwd=root)
        assert result.result is not None
        assert result.result.stdout == "made\n", result.result.stderr
        if crashed:
            # As if it had been left by a process that is gone: of this boot, but no living pid.
            home = root.parent
            boot, namespace, _pid, rest = home.name.split("-", 3)
            home.rename(home.with_name(f"{boot}-{namespace}-4194304-{rest}"))
            Runtime.temporary(pool=False).close()
    assert not homes.exists()
    assert (elsewhere / "kept").read_text() == "kept"
