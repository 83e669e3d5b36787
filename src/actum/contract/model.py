"""The execution contract: what is asked, as frozen values. Start reading here.

A contract is written by a person or an agent (YAML, JSON or keyword arguments), parsed strictly
by `contract.parse`, completed once by `contract.complete`, and never changed afterwards. ``None``
in the sandbox section means "not asked for": the table default or the adapter's override then
applies (`policy.effective`). Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from actum.value import field, value

#: A working directory that asks for no directory of the host: the sandbox's own scratch.
SCRATCH = "scratch:"
SCRATCH_INSIDE = "/tmp"

Json = Any  #: a JSON value; canonical encoding refuses whatever is not one


class FilesystemLevel(StrEnum):
    MINIMAL = "minimal"
    STANDARD = "standard"
    EXTENDED = "extended"
    ELEVATED = "elevated"


class NetworkLevel(StrEnum):
    OFFLINE = "offline"
    REGISTRY = "registry"
    API = "api"
    OPEN = "open"


class StreamMode(StrEnum):
    CAPTURED = "captured"
    EXPECTED = "expected"  #: captured, and compared with the golden output


class Determinism(StrEnum):
    D0 = "D0"
    D1 = "D1"
    D2 = "D2"
    D3 = "D3"


class RunnerKind(StrEnum):
    DOCKER = "docker"
    LOCAL = "local"
    REMOTE = "remote"


@value
class Inputs:
    command: str  #: the adapter's executable (cli) or one of its operations
    arguments: tuple[str, ...] = ()  #: raw argv elements, after what parameters render to
    parameters: Mapping[str, Json] = field(default_factory=dict)  #: named, for the adapter
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    input_files: tuple[str, ...] = ()
    stdin: bytes | None = None
    #: secret -> how it comes in: ``env``, ``env:VARIABLE`` or ``fd``. Names, never values.
    secrets: Mapping[str, str] = field(default_factory=dict)


class ChangesMode(StrEnum):
    """What becomes of what a tool writes."""

    TRANSACTION = "transaction"  #: the host takes it over when the tool is gone
    DIRECT = "direct"  #: it is written to the folders themselves


@value
class FilesystemRequest:
    level: FilesystemLevel | None = None
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    changes: ChangesMode | None = None


@value
class NetworkRequest:
    level: NetworkLevel | None = None
    enabled: bool | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@value
class ProcessRequest:
    max_children: int | None = None
    allow_fork: bool | None = None


@value
class SandboxRequest:
    timeout_ms: int | None = None
    memory_mb: int | None = None
    cpu_cores: int | None = None
    filesystem: FilesystemRequest = FilesystemRequest()
    network: NetworkRequest = NetworkRequest()
    processes: ProcessRequest = ProcessRequest()


@value
class ArtifactSpec:
    """A file the tool promises to leave in the artifacts directory."""

    name: str
    path: str  #: relative to the artifacts directory
    type: str = "file"


@value
class ExpectedOutputs:
    stdout: StreamMode = StreamMode.CAPTURED
    stderr: StreamMode = StreamMode.CAPTURED
    exit_code: int | None = None  #: ``None``: not declared; the exit-code table alone decides
    output_files: tuple[str, ...] = ()
    artifacts: tuple[ArtifactSpec, ...] = ()


#: What most contracts say about these two: nothing.
NOTHING_ASKED = SandboxRequest()
NOTHING_EXPECTED = ExpectedOutputs()


@value
class Metadata:
    requested_by: str
    requested_at: datetime  #: the one value of time that any decision sees
    purpose: str
    evidence_ref: str | None = None


@value
class Contract:
    """One code execution, as asked for (seed 000)."""

    execution_id: str
    tool_id: str
    adapter_id: str | None  #: ``None`` until the registry picks the only active one
    inputs: Inputs
    sandbox: SandboxRequest = NOTHING_ASKED
    outputs: ExpectedOutputs = NOTHING_EXPECTED
    metadata: Metadata
    determinism: Determinism = Determinism.D0
    session: str | None = None
    #: Dotted names of the fields that were filled in at creation, not written by the asker.
    #: They are left out of the identity digest, so that asking the same thing twice is the same.
    filled: frozenset[str] = frozenset()
