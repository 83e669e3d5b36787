"""The tools shipped with Actum: copied into a repository, never used from here.

Copies only: pinning them is a decision like any other (`registry.approval_workflow.approve`).
"""

from __future__ import annotations

from pathlib import Path

from actum.contract.model import RunnerKind
from actum.errors import Fault

_SHIPPED = Path(__file__).parent / "shipped"
#: The line of each shipped tool.yaml that is rewritten.
_RUNNER_LINE = "    runner: docker\n"


def shipped_names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in _SHIPPED.glob("*/tool.yaml")))


def ship(destination: Path, runner: RunnerKind) -> tuple[Path, ...]:
    """Write the shipped tools below `destination`, to run on `runner`. Returns the folders.

    An existing folder is left unchanged: it may have been edited and approved.
    """
    written = []
    for name in shipped_names():
        target = destination / name
        if target.exists():
            continue
        for source in sorted((_SHIPPED / name).rglob("*")):
            if source.is_file():
                copy = target / source.relative_to(_SHIPPED / name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(_content(source, runner))
        written.append(target)
    return tuple(written)


def _content(source: Path, runner: RunnerKind) -> bytes:
    content = source.read_bytes()
    if source.name != "tool.yaml":
        return content
    line = _RUNNER_LINE.encode()
    if content.count(line) != 1:
        raise Fault(f"The shipped {source} does not name its runner on exactly one line.")
    return content.replace(line, f"    runner: {runner.value}\n".encode())
