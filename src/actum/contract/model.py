"""The execution contract: the request, as frozen values. Start reading here.

A contract is written by a person or an agent (YAML, JSON or keyword arguments), parsed strictly
by `contract.parse`, completed once by `contract.defaults`, and never changed afterwards. ``None``
in the sandbox section means "not requested": the table default or the adapter's override then
applies (`policy.effective`). This module decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from actum.documents.json_value import Json as Json
from actum.value import field, value

#: The working directory that requests no directory of the host: the sandbox's own scratch.
SCRATCH = "scratch:"
SCRATCH_INSIDE = "/tmp"


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
    arguments: tuple[str, ...] = ()  #: raw argv elements, after the rendered parameters
    parameters: Mapping[str, Json] = field(default_factory=dict)  #: named, for the adapter
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    input_files: tuple[str, ...] = ()
    stdin: bytes | None = None
    #: secret -> how the tool gets it: ``env``, ``env:VARIABLE`` or ``fd``. Names, never values.
    secrets: Mapping[str, str] = field(default_factory=dict)


class ChangesMode(StrEnum):
    """How a tool's changes reach the project."""

    TRANSACTION = "transaction"  #: the host commits them when the tool has ended
    DIRECT = "direct"  #: the tool writes to the folders themselves


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
    """A file that the tool promises to write to the artifacts directory."""

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


#: The two sections as most contracts have them: empty.
NOTHING_ASKED = SandboxRequest()
NOTHING_EXPECTED = ExpectedOutputs()


@value
class Metadata:
    requested_by: str
    requested_at: datetime  #: the only time that any decision reads
    purpose: str
    evidence_ref: str | None = None


@value
class Contract:
    """One requested execution (seed 000)."""

    execution_id: str
    tool_id: str
    adapter_id: str | None  #: ``None`` until the registry picks the only active one
    inputs: Inputs
    sandbox: SandboxRequest = NOTHING_ASKED
    outputs: ExpectedOutputs = NOTHING_EXPECTED
    metadata: Metadata
    determinism: Determinism = Determinism.D0
    session: str | None = None
    #: Dotted names of the fields that Actum filled in at creation, not written by the requester.
    #: The identity digest leaves them out, so that equal requests have equal digests.
    filled: frozenset[str] = frozenset()
