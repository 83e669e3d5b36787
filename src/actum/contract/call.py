"""From a contract to one execution: Call, proof, effective policy, Plan.

An adapter turns a contract into a `Call`. `ValidationProof` records that the call was checked and
how. `EffectivePolicy` holds what it may do. `Plan` joins them: a runner sees nothing else, so a
runner cannot widen, guess or choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from actum.contract.canonical import sha256_bytes, sha256_json
from actum.contract.image_reference import RootImage
from actum.contract.limits import Limits
from actum.contract.model import Inputs, Json, RunnerKind
from actum.value import field, replace, value

#: The folder inside the sandbox for files that an adapter provides; interpreters get their paths.
PROVIDED = "/run/actum"
#: A driver that got an access token leaves it here among the artifacts; it is never collected.
TOKEN_FILE = "actum-access-token"  # noqa: S105 -- a name
#: The provided file that, started by Python, imports first and then waits for a request on stdin.
WAITING_DRIVER = "sdk_python.py"


@value
class Argument:
    """One argv element and its origin; the checks differ by origin."""

    value: str
    field: str  #: e.g. ``inputs.arguments[0]`` or ``inputs.parameters.pattern``
    literal: bool = False  #: declared verbatim (a regex): shell characters are escaped, not refused
    path: bool = False  #: declared a path: IV-03 applies
    fixed: bool = False  #: written by the adapter itself, reviewed with the pin
    prefix: str = ""  #: the adapter's own text before the caller's, as in ``--glob={value}``
    suffix: str = ""  #: and after it

    @property
    def given(self) -> str:
        """The caller's part of the element, which the input checks judge."""
        return self.value[len(self.prefix) : len(self.value) - len(self.suffix)]


@value
class Executable:
    """The checked file. The file that runs is compared with it."""

    path: str  #: absolute, symlinks resolved
    sha256: str
    device: int
    inode: int
    image: str = ""  #: id of the image that `path` is in; empty: this host


@value
class ToolRef:
    tool_id: str
    name: str
    version: str
    pin: str  #: digest of the whole approved tool folder


@value
class AdapterRef:
    adapter_id: str
    version: str
    kind: str
    status: str
    sha256: str


@value
class SecretUse:
    """One secret that a call requests. Its value is in no contract, call, plan or digest."""

    name: str  #: as `[secrets]` of actum.toml and `permissions.secrets.allowed` write it
    variable: str  #: holds the value, or the number of the descriptor to read it from
    by_descriptor: bool = False
    #: Not the secret itself but its latest access token, if one is cached
    token: bool = False


def secrets_asked(inputs: Inputs) -> tuple[SecretUse, ...]:
    """The requests of `inputs.secrets`, sorted by name; descriptors count from 3."""
    return tuple(
        SecretUse(name=name, variable=f"ACTUM_FD_{name}", by_descriptor=True)
        if how == "fd"
        else SecretUse(name=name, variable=how.partition(":")[2] or name)
        for name, how in sorted(inputs.secrets.items())
    )


@value
class ProgramFile:
    """The argument that names the program of an interpreter. It is checked and sealed like an input
    file, so that the receipt binds what ran."""

    path: str  #: as given
    field: str
    otherwise: str  #: what to do if there is no such file


@value
class Call:
    """What would be executed, before any check."""

    tool: ToolRef
    adapter: AdapterRef
    operation: str  #: the allowlisted command or operation
    program: str  #: as the adapter names it, resolved on the scoped PATH by the registry stage
    arguments: tuple[Argument, ...]
    environment: Mapping[str, str]
    stdin: bytes
    working_directory: str
    input_files: tuple[str, ...]
    #: name -> content of files that the adapter provides, inside the sandbox below `PROVIDED`
    provided: Mapping[str, bytes] = field(default_factory=dict)
    secrets: tuple[SecretUse, ...] = ()
    program_file: ProgramFile | None = None  #: once checked, the last of `input_files`

    @property
    def argv(self) -> tuple[str, ...]:
        return (self.program, *(argument.value for argument in self.arguments))


class CheckResult(StrEnum):
    PASSED = "passed"
    ESCAPED = "escaped"
    STRIPPED = "stripped"
    BLOCKED = "blocked"


@value
class Check:
    """Verdict of one input check; `names` lists escaped or stripped names, never values."""

    code: str  #: ``IV-01`` … ``IV-05``
    result: CheckResult
    names: tuple[str, ...] = ()


def stripped_names(checks: tuple[Check, ...]) -> tuple[str, ...]:
    """The environment variables that a request names and the tool does not get (IV-04)."""
    return tuple(
        name for check in checks if check.result is CheckResult.STRIPPED for name in check.names
    )


@value
class ValidationProof:
    """Proof that IV-01..05 held for exactly this call. A runner refuses a plan without it."""

    call_sha256: str
    policy_sha256: str
    checks: tuple[Check, ...]
    executable: Executable
    #: Binds the proof to every field of one plan; `Plan.bound_sha256` must equal it.
    plan_sha256: str = field(default="", compare=False)

    @property
    def sha256(self) -> str:
        return sha256_json(
            {
                "call": self.call_sha256,
                "policy": self.policy_sha256,
                "checks": [[c.code, c.result.value, list(c.names)] for c in self.checks],
                # With the image only where there is one: other proofs keep their digest.
                "executable": [
                    self.executable.path,
                    self.executable.sha256,
                    *([self.executable.image] if self.executable.image else []),
                ],
            }
        )


@value
class NetworkPolicy:
    enabled: bool
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    outbound: tuple[str, ...]  #: protocol classes of the ToolSpec: dns, http, https, tcp
    internal: tuple[str, ...] = ()  #: ``host:port`` whose internal addresses were approved


@value
class Narrowed:
    """A part of the request of which the call gets less than the request names."""

    field: str  #: e.g. ``sandbox.timeout_ms`` or ``sandbox.filesystem.read``
    asked: str  #: a number, or a path
    given: str  #: the number in force, or the paths below that are left; empty for nothing
    by: str  #: the field of tool.yaml, or the other source, that permits no more


@value
class Interpreter:
    """An approved folder outside the system directories (`[interpreters]` of actum.toml) from which
    this call executes programs. Mounted read-only at its own path."""

    prefix: str  #: absolute, without links
    #: (real path, SHA-256) of each program that was judged in it
    programs: tuple[tuple[str, str], ...] = ()


@value
class EffectivePolicy:
    """The intersection of all policy sources. Frozen, hashed, never wider than any source."""

    runner: RunnerKind
    limits: Limits
    read: tuple[str, ...]  #: absolute, resolved; the only host paths visible inside
    write: tuple[str, ...]  #: each also readable
    deny: tuple[str, ...]  #: hidden, wins over both
    #: Inside a writable path, but not writable by the tool: a read-only mount where it writes
    #: directly, held back when a transaction commits.
    protect: tuple[str, ...]
    network: NetworkPolicy
    environment: tuple[str, ...]  #: names that may reach the tool
    approvals: tuple[str, ...] = ()  #: approvals used: ``gate:pin``, ``gate:who:request_id``
    #: Whether changes are a transaction, which the host decides about afterwards, or direct.
    transaction: bool = False
    #: Readable beside `read`, for the program alone: no input may name a path in them.
    interpreters: tuple[Interpreter, ...] = ()
    #: For people: no right follows from it, so it is no part of the document and its digest.
    narrowed: tuple[Narrowed, ...] = field(default=(), compare=False)

    @property
    def writes_directly(self) -> bool:
        return bool(self.write) and not self.transaction

    def document(self) -> dict[str, Json]:
        return {
            "runner": self.runner.value,
            "limits": {
                "timeout_ms": self.limits.timeout_ms,
                "memory_mb": self.limits.memory_mb,
                "cpu_cores": self.limits.cpu_cores,
                "max_children": self.limits.max_children,
                "allow_fork": self.limits.allow_fork,
            },
            "filesystem": {
                "read": list(self.read),
                "write": list(self.write),
                "deny": list(self.deny),
                "protect": list(self.protect),
                "changes": "transaction" if self.transaction else "direct",
            },
            "network": {
                "enabled": self.network.enabled,
                "allow": list(self.network.allow),
                "deny": list(self.network.deny),
                "outbound": list(self.network.outbound),
                "internal": list(self.network.internal),
            },
            "environment": list(self.environment),
            "approvals": list(self.approvals),
            # Only where there are some: other policies keep the digest that they always had.
            **({"interpreters": _interpreters(self)} if self.interpreters else {}),
        }

    @property
    def sha256(self) -> str:
        return _policy_sha256(self)


def _interpreters(policy: EffectivePolicy) -> list[Json]:
    return [
        {"prefix": each.prefix, "programs": dict(each.programs)} for each in policy.interpreters
    ]


@lru_cache(maxsize=64)  # asked four times per execution; many share one policy
def _policy_sha256(policy: EffectivePolicy) -> str:
    return sha256_json(policy.document())


@value
class TraceContext:
    """The trace and execution that this attempt belongs to (seed 004)."""

    trace_id: str
    execution_id: str
    attempt: int = 1
    parent: str | None = None


@value
class SealedInput:
    """An input file, read once. The tool reads its copy at `path`."""

    path: str  #: absolute, resolved
    sha256: str
    copy: str = field(compare=False)  #: a private file with exactly these bytes


@value
class Plan:
    """All that a runner may know about one attempt."""

    tool: ToolRef
    adapter: AdapterRef
    argv: tuple[str, ...]  #: argv[0] is the name the tool sees; `proof.executable` is what runs
    environment: Mapping[str, str]
    working_directory: str
    stdin: bytes
    policy: EffectivePolicy
    proof: ValidationProof
    output_files: tuple[str, ...]  #: absolute paths to collect
    artifacts: tuple[str, ...]  #: declared names; other files there are collected too
    trace: TraceContext
    provided: Mapping[str, bytes] = field(default_factory=dict)  #: read-only, below `PROVIDED`
    secrets: tuple[SecretUse, ...] = ()  #: names; the runner gets the values at the start
    steady: bool = False  #: addresses are not randomised
    #: writable folder -> folder of the layers that receive its changes, for a transaction
    layers: Mapping[str, str] = field(default_factory=dict)
    sealed: tuple[SealedInput, ...] = ()  #: the input files
    #: read-only folder with sealed inputs -> folder of the layers that hold the sealed copies
    views: Mapping[str, str] = field(default_factory=dict, compare=False)
    image: RootImage | None = None  #: root of the sandbox; ``None``: this host's system directories
    label: str = field(default="", compare=False)

    @property
    def call_sha256(self) -> str:
        """Digest of exactly what would run; `proof.call_sha256` must equal it."""
        return call_sha256(
            tool=self.tool,
            adapter=self.adapter,
            argv=self.argv,
            environment=self.environment,
            working_directory=self.working_directory,
            stdin=self.stdin,
            provided=self.provided,
            secrets=self.secrets,
            steady=self.steady,
            sealed=self.sealed,
            image=self.image,
        )

    @property
    def bound_sha256(self) -> str:
        """Digest of the proof and of every field that neither `call_sha256` nor the digest of the
        policy covers whole; `proof.plan_sha256` must equal it."""
        tool, adapter, proof, trace = self.tool, self.adapter, self.proof, self.trace
        executable = proof.executable
        return sha256_json(
            {
                "call": proof.call_sha256,
                "policy": proof.policy_sha256,
                "narrowed": [[n.field, n.asked, n.given, n.by] for n in self.policy.narrowed],
                "checks": [[c.code, c.result.value, c.names] for c in proof.checks],
                # Text: an inode number may be beyond the exact integers of JSON.
                "executable": [
                    executable.path,
                    executable.sha256,
                    f"{executable.device}:{executable.inode}",
                    executable.image,
                ],
                "tool": tool.name,
                "adapter": [adapter.kind, adapter.status],
                "output_files": self.output_files,
                "artifacts": self.artifacts,
                "trace": [trace.trace_id, trace.execution_id, trace.attempt, trace.parent],
                "layers": dict(self.layers),
                "views": dict(self.views),
                "copies": [each.copy for each in self.sealed],
                "image": _image(self.image),
                "label": self.label,
            }
        )


def bound(plan: Plan) -> Plan:
    """`plan` with a proof that is bound to it. Only the pipeline calls this: for a plan that it
    validated, or changed in nothing that a validation judges (trace, layers, views, label)."""
    return replace(plan, proof=replace(plan.proof, plan_sha256=plan.bound_sha256))


def call_sha256(
    *,
    tool: ToolRef,
    adapter: AdapterRef,
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    working_directory: str,
    stdin: bytes,
    provided: Mapping[str, bytes],
    secrets: tuple[SecretUse, ...] = (),
    steady: bool = False,
    sealed: tuple[SealedInput, ...] = (),
    image: RootImage | None = None,
) -> str:
    asked = [
        [use.name, use.variable, use.by_descriptor, *(["token"] if use.token else [])]
        for use in secrets
    ]
    return sha256_json(
        {
            "tool": [tool.tool_id, tool.version, tool.pin],
            "adapter": [adapter.adapter_id, adapter.version, adapter.sha256],
            "argv": list(argv),
            "environment": dict(environment),
            "working_directory": working_directory,
            "stdin": sha256_bytes(stdin),
            "provided": {name: sha256_bytes(content) for name, content in provided.items()},
            **({"secrets": asked} if asked else {}),
            **({"steady": True} if steady else {}),
            **({"inputs": {each.path: each.sha256 for each in sealed}} if sealed else {}),
            **({"image": image.id} if image is not None else {}),
        }
    )


def _image(image: RootImage | None) -> list[str] | None:
    if image is None:
        return None
    return [image.id, image.reference, image.folder, f"{image.device}:{image.inode}"]
