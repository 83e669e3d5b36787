"""The project that the trials strike: many kinds of names, and one earlier committed work item.

Records hold the project's absolute path. So every trial has its copy at the same path, and the
templates that it is copied from are kept beside it.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ACTUM = (sys.executable, "-m", "actum.doors.cli.main")
_FOREIGN_ID = 12_345
#: An upper bound on an emulated machine. No test measures time with it.
_ENDS_WITHIN_S = 600

_MANY_KINDS = """
printf changed > edit; rm -r gone; mkdir -p made/deep; printf n > made/new; printf d > made/deep/x
printf more >> pair-written-1; mv 100%.txt 200%.txt; ln made/new made/second
sleep 0.3
mv folder moved; ln -s edit link; chmod 700 mode; rm file; mkdir file; printf in > file/in
rm -r tree; printf flat > tree; for i in 1 2 3; do printf $i > made/$i; done
"""
_FEW_KINDS = """
cd {folder}
printf changed > edit; rm -r gone; mkdir made; printf n > made/new
sleep 0.1
mv folder moved; rm file; mkdir file; printf in > file/in
"""
#: agent -> what it does
_AGENTS = {
    "agent-1": _MANY_KINDS,
    "agent-2": _FEW_KINDS.format(folder="left"),
    "agent-3": _FEW_KINDS.format(folder="right"),
    "agent-4": _FEW_KINDS.format(folder="joined"),
    "agent-8": "printf next > deep/next",
    "agent-9": "printf earlier > deep/earlier; printf earlier > replaced; rm removed",
}
_LIMITS = {"max_files": 50, "max_delta_size": 200}


def _item(name: str, agent: str, **more: Any) -> dict[str, Any]:
    common = {"id": name, "agent_id": agent, "description": f"the work of {agent}"}
    return {**common, "constraints": _LIMITS, **more}


ITEM = _item("many-kinds", "agent-1", test_command="test -e made/new && test ! -e gone")
EARLIER = _item("earlier", "agent-9")
NEXT = _item("next", "agent-8")
#: Each item of the graph changes one folder of its own.
GRAPH_FOLDERS = {"left": b"left", "right": b"right", "joined": b"joined"}
GRAPH = (
    _item("left", "agent-2", test_command="test -e left/made/new"),
    _item("right", "agent-3"),
    _item("joined", "agent-4", dependencies=["left", "right"]),
)
DOCUMENTS = {
    "items/item.yaml": ITEM,
    "items/earlier.yaml": EARLIER,
    "items/next.yaml": NEXT,
    "items/work.yaml": {"items": list(GRAPH)},
}


def steps(agent: str) -> list[dict[str, str]]:
    """What an agent does, as its file says it. An emulated machine beside busy ones is slow."""
    return [{"tool": "shell", "stdin": _AGENTS[agent], "timeout": "600s"}]


def make(project: Path, settings: str, *, history: bool = True) -> None:
    """A new project at `project`; its actum.toml has `settings`.

    Without `history` it is in no git repository, and no work item was committed in it.
    """
    project.mkdir(mode=0o700)
    # `actum init` leaves a file that exists as it is, and approves what a new project finds there.
    (project / "actum.toml").write_text(f"[runners]\nlocal = true\n{settings}")
    actum(project.parent, "init", str(project), "--runner", "local")
    for agent in _AGENTS:
        document = {"agent_id": agent, "steps": steps(agent)}
        _write(project / f"agents/{agent}.yaml", yaml.safe_dump(document))
    for name, document in DOCUMENTS.items():
        _write(project / name, json.dumps(document))  # JSON is YAML
    _fill(project)
    if history:
        _commit(project)


def _commit(project: Path) -> None:
    git = ("git", "-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    # Packed and without sample hooks: the copy engine copies the repository, too.
    for line in ("init --quiet --template=", "add .", "commit --quiet -m First", "repack -adq"):
        subprocess.run([*git, *line.split()], cwd=project, check=True, capture_output=True)
    actum(project, "item", "run", "items/earlier.yaml")


def _fill(project: Path) -> None:
    names = "edit gone/a gone/b/c folder/a folder/b mode file tree/a/b deep/er/est/leaf"
    for name in (*names.split(), "100%.txt", "replaced", "removed", "ignored", "private/secret"):
        _write(project / name, f"old {name}")
    for folder in GRAPH_FOLDERS:
        for name in ("edit", "gone/a", "folder/a", "file", "stays"):
            _write(project / folder / name, f"old {folder} {name}")
    _write(project / ".gitignore", "ignored\n")
    _write(project / "closed/inside", "cannot be replaced by its owner")
    for first, second in (
        ("pair-1", "deep/pair-2"),
        ("pair-written-1", "pair-written-2"),
        ("folder/pair-1", "folder/pair-2"),
    ):
        _write(project / first, f"two names {first}")
        os.link(project / first, project / second)
    (project / "good-link").symlink_to("deep/er/est/leaf")
    (project / "dangling-link").symlink_to("nowhere/at all")
    top = os.fsencode(project)
    for odd in (b"a new\nline", b"latin-1-\xe9"):
        with open(top + b"/" + odd, "wb") as file:
            file.write(odd)
    with (project / "sparse").open("wb") as file:
        file.seek(200_000)
        file.write(b"end")
    (project / "empty").mkdir()
    (project / "private/secret").chmod(0o400)
    (project / "private").chmod(0o700)
    (project / "closed").chmod(0o555)
    if os.geteuid() == 0:
        for name in ("of-another", "folder/of-another"):
            _write(project / name, "not root's")
            os.chown(project / name, _FOREIGN_ID, _FOREIGN_ID)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def actum(folder: Path, *words: str, json_wanted: bool = False) -> Any:
    """Run a command to its end; it must succeed."""
    command = [*ACTUM, *words, *(["--json"] if json_wanted else [])]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_ENDS_WITHIN_S
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout) if json_wanted else done.stdout


def copy(template: Path, project: Path) -> None:
    """With modes, owners, times, hard links, symbolic links and holes."""
    assert not os.path.lexists(project)
    subprocess.run(["cp", "-a", "--sparse=always", template, project], check=True)


def remove(project: Path) -> None:
    """Never into a mount: a failed trial may have left one."""
    if os.geteuid() != 0:
        for directory, names, _ in os.walk(project):
            for name in names:
                path = os.path.join(directory, name)
                mode = os.lstat(path).st_mode
                if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
                    os.chmod(path, 0o700)
    subprocess.run(["rm", "-rf", "--one-file-system", "--", project], check=True)
