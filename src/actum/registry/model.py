"""Tools, adapters, and the pins that grant them the right to run.

A `Tool` is `tool.yaml` read strictly; an `Adapter` is one file of its `adapters/` folder. Neither
grants anything: only an `Entry` does (a tool, its adapter and its pin, all active).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from actum.contract.call import AdapterRef, ToolRef
from actum.contract.image_reference import HOST
from actum.contract.model import Json, NetworkLevel, RunnerKind
from actum.value import field, value

#: The operation that compiles an sdk adapter's sources; its approval permits it.
COMPILE = "@compile"


class ToolStatus(StrEnum):
    ACTIVE = "active"
    DEPRECATED = "deprecated"
    BLOCKED = "blocked"


class AdapterStatus(StrEnum):
    ACTIVE = "active"
    DEPRECATED = "deprecated"
    EXPERIMENTAL = "experimental"


class AdapterKind(StrEnum):
    CLI = "cli"
    API = "api"
    SDK = "sdk"
    MCP = "mcp"


@value
class Scope:
    """The allowlist of a tool. Empty means nothing, never everything."""

    commands: tuple[str, ...]  #: ``rg``, or ``git status``: executable and permitted first argument
    endpoints: tuple[str, ...]
    data_access: str  #: read | write | none
    network: bool
    hosts: tuple[str, ...]  #: what the pin approves for AG-03
    filesystem: tuple[str, ...]  #: paths the tool may ever use; relative to the repo root


@value
class Permissions:
    """The ceiling that `permissions` of tool.yaml sets (the ToolSpec of seed 004)."""

    outbound: tuple[str, ...]
    read: tuple[str, ...] | None  #: ``None``: as wide as the scope
    write: tuple[str, ...] | None
    secrets: tuple[str, ...]
    runner: RunnerKind
    max_duration_s: int | None
    max_memory_mb: int | None
    max_cpu_cores: int | None


@value
class Operation:
    """The declared effect of repeating one operation."""

    idempotent: bool = False  #: repeating it changes nothing
    key: str | None = None  #: a parameter that makes it idempotent when given


_ORDINARY = Operation()


@value
class Tool:
    tool_id: str
    name: str
    version: str
    owner: str
    description: str
    provenance: Mapping[str, str]  #: repo_url, commit_or_tag, checksum, license
    scope: Scope
    args_schema: Mapping[str, Json]
    permissions: Permissions
    environment: tuple[str, ...]  #: names a caller may set (IV-04)
    path: tuple[str, ...]  #: scoped PATH; empty for the runner's minimal one
    artifacts: tuple[str, ...]
    status: ToolStatus
    last_review: str
    next_review: str
    folder: str
    servers: Mapping[str, Json] = field(default_factory=dict)  #: MCP servers it may start or reach
    packages_folder: str = "lib"  #: in the tool's folder: code of its sdk adapters, pinned too
    packages_path: str | None = None  #: alternatively, packages elsewhere, from the repo root
    operations: Mapping[str, Operation] = field(default_factory=dict)  #: those with a declaration
    workspace: str = ""  #: direct, transaction or either; empty for the project's default
    image: str = HOST  #: root of its sandbox: `host`, an image id, or a name with a digest

    def operation(self, name: str) -> Operation:
        return self.operations.get(name, _ORDINARY)


@value
class ProgramInterface:
    """How an interpreter takes the program that a caller writes: on stdin, and otherwise."""

    example: str  #: a short program, for refusals
    text_options: tuple[str, ...] = ()  #: options of the executable whose value is a program
    file_args: tuple[str, ...] | None = None  #: in place of `base_args`, before a program file


@value
class CliInterface:
    executable: str
    base_args: tuple[str, ...]
    arg_mapping: Mapping[str, str]
    env_mapping: Mapping[str, str]
    program: ProgramInterface | None = None  #: ``None``: stdin is data, and optional


@value
class Transform:
    type: str
    spec: Json


@value
class Retry:
    max_attempts: int
    backoff_ms: int
    retryable_codes: tuple[int, ...]


@value
class Fallback:
    adapter_id: str
    condition: str


@value
class SandboxOverride:
    timeout_ms: int | None = None
    memory_mb: int | None = None
    network_enabled: bool | None = None
    network_allow: tuple[str, ...] | None = None
    network_level: NetworkLevel | None = None  #: of a call that names no level and no hosts


_MAPPINGS = {
    AdapterKind.API: "endpoint_mapping",
    AdapterKind.SDK: "function_mapping",
    AdapterKind.MCP: "tool_mapping",
}


@value
class Adapter:
    adapter_id: str
    name: str
    version: str
    tool_id: str
    kind: AdapterKind
    cli: CliInterface | None
    interface: Mapping[str, Json]  #: the block of `kind`, as written
    input_transforms: tuple[Transform, ...]
    output_transforms: tuple[Transform, ...]
    retry: Retry
    fallback: Fallback | None
    override: SandboxOverride
    author: str
    created: str
    updated: str
    status: AdapterStatus
    sha256: str  #: of the file, as approved

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations of an adapter that is not a cli one."""
        mapping = _MAPPINGS.get(self.kind)
        return tuple(self.interface[mapping]) if mapping else ()


@value
class Pin:
    """One approval in `tools.lock`: exactly this folder may run."""

    tool_id: str
    name: str
    version: str
    digest: str  #: of the whole folder
    status: ToolStatus
    approver: str
    date: str
    evidence: str
    adapters: Mapping[str, str]  #: adapter_id -> version approved with this tool version
    #: path -> SHA-256, with ``+x`` if executable; says which files changed
    files: Mapping[str, str] = field(default_factory=dict)
    #: the grants, so that the next approval can state whether it grants more
    grants: Mapping[str, Json] = field(default_factory=dict)
    #: the approver's role; ``any``: there were no approvers; empty: an earlier version approved it
    role: str = ""


class ScopeChange(StrEnum):
    EXPANDED = "expanded"
    UNCHANGED = "unchanged"
    REDUCED = "reduced"


@value
class Change:
    """One entry of a tool's history: who decided what, when and on what evidence."""

    tool_id: str
    action: str  #: approve | deprecate | block | unblock
    by: str
    date: str
    evidence: str
    version: str
    digest: str
    status: ToolStatus
    scope_change: ScopeChange
    role: str = ""  #: as in `Pin`


@value
class SettingsPin:
    """The approval of settings in `tools.lock`: exactly these values may be used."""

    values: Mapping[str, Json]  #: key -> value of each that needs approval and is not the default
    approver: str
    user: str  #: the approver's operating system user
    uid: int
    date: str
    why: str
    role: str = ""  #: as in `Pin`


@value
class SettingsChange:
    """One entry of the settings' history."""

    changed: tuple[str, ...]  #: keys
    sha256: str  #: of the values that were approved
    approver: str
    user: str
    uid: int
    date: str
    why: str
    role: str = ""  #: as in `Pin`


@value(slots=False)
class Entry:
    """A tool and one of its adapters, both checked against the pin. Derived values are computed
    once per entry."""

    tool: Tool
    adapter: Adapter
    pin: Pin
    program: bytes | None = field(default=None, repr=False)  #: compiled from its sources

    @cached_property
    def tool_ref(self) -> ToolRef:
        return ToolRef(
            tool_id=self.tool.tool_id,
            name=self.tool.name,
            version=self.tool.version,
            pin=self.pin.digest,
        )

    @cached_property
    def adapter_ref(self) -> AdapterRef:
        return AdapterRef(
            adapter_id=self.adapter.adapter_id,
            version=self.adapter.version,
            kind=self.adapter.kind.value,
            status=self.adapter.status.value,
            sha256=self.adapter.sha256,
        )
