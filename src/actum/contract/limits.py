"""The numeric limits of one execution: default, least, most. The first four are seed 000's."""

from __future__ import annotations

from actum.value import value

MIB = 1_048_576

STDOUT_BYTES = 1_048_576
STDERR_BYTES = 262_144
OUTPUT_FILES_BYTES = 10_485_760
ARTIFACTS_BYTES = 10_485_760
STDIN_BYTES = 1_048_576
INPUT_FILES_BYTES = 10_485_760

#: The longest line that a tool with a session may write at once.
MESSAGE_BYTES = 4_194_304
#: How long such a tool may be idle, unless declared otherwise.
IDLE_S = 60.0

#: Between SIGTERM at the deadline and the kill of the whole process tree.
TERM_GRACE_S = 0.5


@value(kw_only=False)
class Range:
    """A limit's default and its inclusive bounds. Values outside are refused, never clamped."""

    default: int
    least: int
    most: int

    def __str__(self) -> str:
        return f"integer {self.least}..{self.most}"


TIMEOUT_MS = Range(30_000, 1_000, 600_000)
MEMORY_MB = Range(512, 64, 4_096)
CPU_CORES = Range(1, 1, 4)
MAX_CHILDREN = Range(10, 0, 100)

RANGES = {
    "timeout_ms": TIMEOUT_MS,
    "memory_mb": MEMORY_MB,
    "cpu_cores": CPU_CORES,
    "max_children": MAX_CHILDREN,
}


@value
class Limits:
    """The numeric limits in force for one attempt."""

    timeout_ms: int
    memory_mb: int
    cpu_cores: int
    max_children: int
    allow_fork: bool

    @property
    def memory_bytes(self) -> int:
        return self.memory_mb * MIB

    @property
    def children(self) -> int:
        """The effective number of children at once: `allow_fork` wins over the count."""
        return self.max_children if self.allow_fork else 0
