"""What the process that items are cloned from does once, no item does again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .shop import add_agent, add_program, item, make_project, opened

pytestmark = pytest.mark.sandbox

#: Imports and prepares what the parent does; then one item is executed as in a clone.
_CLONE = """
import json, sys
from actum.doors import work_item_process as process
process.import_all()
process.prepare()
from actum.documents import json_schema
modules, schemas = set(sys.modules), set(json_schema._compiled)
process._item()
found = {"modules": sorted(set(sys.modules) - modules),
         "schemas": len(set(json_schema._compiled) - schemas)}
print(json.dumps(found), file=sys.stderr)
"""


def _left_to_an_item(project: Path, run_id: str) -> dict[str, Any]:
    """What an item imported and compiled for itself."""
    order = {
        "root": str(project),
        "home": str(project / ".actum"),
        "do": "run",
        "run_id": run_id,
        "item": item(),
        "caps": None,
        "engine": "auto",
        "level": None,
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CLONE],
        input=json.dumps(order) + "\n" + "{}\n" * 20,  # an answer to each report of progress
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["result"]["status"] == "success", answer
    found: dict[str, Any] = json.loads(done.stderr)
    return found


def test_an_item_imports_and_compiles_nothing_itself(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", {"old.txt": "old"})
    add_agent(project, "echo new > new.txt", "echo other > old.txt")
    found = _left_to_an_item(project, "0190a8f0-0000-7000-8000-000000000001")
    assert found == {"modules": [], "schemas": 0}
    assert (project / "new.txt").read_text() == "new\n"


def test_an_agent_that_is_a_program_imports_nothing_on_the_host(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    script = """
        import subprocess
        call = ["actum-tool", "call", "shell", "--stdin"]
        subprocess.run(call, input=b"echo new > new.txt", check=True)
    """
    add_program(project, script)
    found = _left_to_an_item(project, "0190a8f0-0000-7000-8000-000000000002")
    assert (project / "new.txt").read_text() == "new\n"
    assert found == {"modules": [], "schemas": 0}


def test_clones_leave_no_word_with_the_process_that_they_were_cloned_from(tmp_path: Path) -> None:
    """Each had reported a lock there that it found unlocked, until the pipe was full and all items
    stood still."""
    project = make_project(tmp_path / "project")
    add_agent(project, "date +%N > new.txt")
    with opened(project) as rt:
        for number in range(3):
            assert rt.work(item(id=f"i{number}")).status == "success"
        parent = rt.work_items.processes
        assert parent._discard() == "exit 0: "


#: A process with the namespaces of an item, whose spawner is cloned. It names the parent and the
#: program of that spawner, and what the process it was cloned from has in its environment.
_SPAWNER = """
import json, re
from pathlib import Path
from actum.runners.spawner_start import Spawner
from actum.sandbox.spawner_clone import Clone, SpawnerSource
from actum.workspace import namespace

source = SpawnerSource()
environ = b""
while not environ:  # its program is just being loaded
    environ = Path(f"/proc/{source._process.pid}/environ").read_bytes()
namespace.enter()
spawner = Spawner(source=source.line)
spawner.start()
clone = spawner._process
assert isinstance(clone, Clone)
spawner._await_ready(spawner._socket)
pid = re.search(r"^Pid:\\s+(\\d+)$", Path(f"/proc/self/fdinfo/{clone.pidfd}").read_text(), re.M)[1]
status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
found = {"parent": int(status[1]) == source._process.pid, "session": status[3] == pid}
found["environment"] = environ.decode().split("\\0")[:-1]
spawner.close()
found["gone"] = not Path(f"/proc/{pid}").exists()
source.close()
print(json.dumps(found))
"""


def test_the_spawner_of_an_item_is_a_clone_of_a_process_that_knows_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SPAWNER],
        capture_output=True,
        text=True,
        env={**os.environ, "SECRET": "of the caller"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "parent": True,
        "session": True,
        "environment": ["PYTHONHASHSEED=0"],
        "gone": True,
    }


@pytest.mark.parametrize("by", ["its socket", "its process"])
def test_an_item_starts_its_spawner_itself_where_none_can_be_cloned(
    tmp_path: Path, by: str
) -> None:
    project = make_project(tmp_path / "project")
    add_agent(project, "echo $ACTUM_NUMBER > one.txt")
    with opened(project) as rt:
        assert rt.work(item(id="first")).status.value == "success"
        spawners = rt.work_items.processes._spawners
        assert spawners is not None
        if by == "its process":
            spawners._process.kill()
            spawners._process.wait()
        else:
            spawners.line.shutdown(socket.SHUT_RDWR)
        add_agent(project, "echo two > two.txt")
        assert rt.work(item(id="second")).status.value == "success"
    assert (project / "two.txt").read_text() == "two\n"
