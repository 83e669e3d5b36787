"""Answers, names and files that a tool chose, read by the host after it ran."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from actum.errors import Refused
from actum.workspace.sealed import SealedInputs
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize("text", ["[" * 100_000, '{"value":' * 50_000, "NaN", "9" * 10_000, '"'])
def test_a_value_that_is_no_value_is_not_believed_and_breaks_nothing(jail: Jail, text: str) -> None:
    code = "import os\nopen('/artifacts/value.json', 'w').write(text)\nos._exit(0)"
    result = jail.runtime.python(code, params={"text": text})
    assert result.outcome == "SUCCEEDED"
    assert isinstance(result.output, dict) and result.output["$type"] == "value.json"
    assert text.startswith(result.output["$repr"])
    assert jail.runtime.python("6 * 7").output == 42


def test_names_do_not_multiply_into_the_evidence(own_jail: Jail) -> None:
    program = """
import os
folder = b"/artifacts"
for _ in range(14):
    folder += b"/" + bytes([0xFF]) * 250
    os.mkdir(folder)
made = 0
try:
    while True:
        os.close(os.open(folder + b"/%04d" % made + bytes([0xFE]) * 240, os.O_CREAT | os.O_WRONLY))
        made += 1
except OSError:
    print(made)
"""
    before = _stored_bytes(own_jail.root)
    result = own_jail.python(program)
    assert int(own_jail.said(result)) > 900
    assert result.outcome == "OUTPUT_INVALID"  # what was not collected is said
    assert _stored_bytes(own_jail.root) - before < 1 << 20


def _stored_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / ".actum").rglob("*") if path.is_file())


@pytest.mark.parametrize("mode", ["000", "077", "500"])
def test_a_tool_that_closes_the_project_does_not_keep_us_from_recording_it(
    own_jail: Jail, mode: str
) -> None:
    """As an ordinary user, we come to `.actum` through a folder that the tool owns as well."""
    (own_jail.root / "out").mkdir()
    script = f"echo x > /artifacts/a; echo y > out/b; chmod {mode} . && echo closed"
    result = own_jail.sh(script, cwd=own_jail.root, limits={"outputs.output_files": ["out/b"]})
    assert own_jail.said(result) == "closed"
    assert result.outcome == "SUCCEEDED"
    assert result.result is not None
    assert [item.name for item in result.result.artifacts] == ["b", "a"]
    assert own_jail.root.stat().st_mode & 0o700 == 0o700
    assert own_jail.said(own_jail.sh("echo again", cwd=own_jail.root)) == "again"


@pytest.mark.parametrize("kind", ["pipe", "link", "device", "gone"])
def test_an_input_file_that_was_swapped_after_the_check_is_not_waited_for(
    tmp_path: Path, kind: str
) -> None:
    """A tool that runs beside can swap it; the digest would be computed for ever."""
    path = tmp_path / "input"
    path.write_text("x")
    (tmp_path / "home").mkdir()
    inputs = SealedInputs(str(tmp_path / "home"))
    (sealed,) = inputs.seal([str(path)])
    assert sealed.sha256 == hashlib.sha256(b"x").hexdigest()
    inputs.close()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "device":
        path = Path("/dev/zero")
    with pytest.raises(Refused) as refused:
        inputs.seal([str(path)])
    assert refused.value.violations[0].code == "PATH_CHANGED"
