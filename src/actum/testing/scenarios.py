"""Every way in which an execution can end: one small script each, and the expected report."""

from __future__ import annotations

from collections.abc import Mapping

from actum.contract.model import Json
from actum.contract.outcome import Outcome, ToolRunStatus
from actum.value import field, value

#: Printed first by every script: output before the end must not be lost.
SAID = "said before the end"
SAID_ASIDE = "said aside before the end"
#: Printed by a script that waits to be cancelled, once its traps are set.
READY = "ready to be cancelled"
#: Replaced by a number that no other process on the host has in its command line.
MARK = "@MARK@"


@value
class Scenario:
    script: str
    outcome: Outcome
    status: ToolRunStatus
    exit_code: int
    limits: Mapping[str, Json] = field(default_factory=dict)  #: fields of the contract
    cancel: bool = False  #: the caller cancels as soon as the tool prints READY


#: A grandchild in its own session that ignores SIGTERM and holds both streams open.
_STUBBORN = f"(trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP; sleep {MARK}' &) "
_FOREVER = f"trap '' TERM; {_STUBBORN}; echo '{READY}'; sleep {MARK}; sleep {MARK}"
#: Doubles a shell variable until memory runs out.
_MEMORY = "x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done"


def _error(script: str, exit_code: int, outcome: Outcome = Outcome.TOOL_ERROR) -> Scenario:
    return Scenario(script=script, outcome=outcome, status=ToolRunStatus.ERROR, exit_code=exit_code)


SCENARIOS: dict[str, Scenario] = {
    "success": Scenario(
        script="exit 0", outcome=Outcome.SUCCEEDED, status=ToolRunStatus.SUCCESS, exit_code=0
    ),
    "success with a process left running": Scenario(
        script=f"{_STUBBORN}; exit 0",
        outcome=Outcome.SUCCEEDED,
        status=ToolRunStatus.SUCCESS,
        exit_code=0,
    ),
    "error": _error("exit 3", 3),
    "permission denied": _error("/etc/passwd", 126, Outcome.PERMISSION_DENIED),
    "command not found": _error("no-such-command-here", 127, Outcome.COMMAND_NOT_FOUND),
    "a code that looks like memory": _error("exit 137", 137),
    "a code that looks like time": _error("exit 143", 143),
    "a signal of its own": _error("kill -9 $$", 137),
    "another signal of its own": _error("kill -15 $$", 143),
    "timeout": Scenario(
        script=_FOREVER,
        outcome=Outcome.TIMED_OUT,
        status=ToolRunStatus.TIMEOUT,
        exit_code=143,
        limits={"sandbox.timeout_ms": 1_000},
    ),
    "memory": Scenario(
        script=f"{_STUBBORN}; {_MEMORY}",
        outcome=Outcome.RESOURCE_KILLED,
        status=ToolRunStatus.KILLED,
        exit_code=137,
        limits={"sandbox.memory_mb": 64},
    ),
    "memory in a child only": Scenario(
        script=f"sh -c '{_MEMORY}'; echo child ended $?; exit 0",
        outcome=Outcome.RESOURCE_KILLED,
        status=ToolRunStatus.KILLED,
        exit_code=137,
        limits={"sandbox.memory_mb": 64},
    ),
    "policy violation": Scenario(
        script=f"{_STUBBORN}; mount -t tmpfs none /tmp; echo went on",
        outcome=Outcome.POLICY_VIOLATION,
        status=ToolRunStatus.ERROR,
        exit_code=137,
    ),
    "cancelled": Scenario(
        script=_FOREVER,
        outcome=Outcome.CANCELLED,
        status=ToolRunStatus.KILLED,
        exit_code=137,
        cancel=True,
    ),
}
