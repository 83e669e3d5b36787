"""From a contract to exactly one thing to run: Call, proof, effective policy, Plan.

`Call` is what an adapter makes of a contract. `ValidationProof` says that the call was checked and
how. `EffectivePolicy` says what it may do. `Plan` joins them: it is all that a runner ever sees,
so a runner cannot widen, guess or choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from actum.contract.canonical import sha256_bytes, sha256_json
from actum.contract.limits import Limits
from actum.contract.model import Inputs, Json, RunnerKind
from actum.value import field, value

#: Where the files that an adapter brings along lie inside: an interpreter is given their paths.
PROVIDED = "/run/actum"
#: Left among the artifacts by a driver that got an access token; it is taken out, never collected.
TOKEN_FILE = "actum-access-token"  # noqa: S105 -- a name
#: The provided file that, started by Python, imports first and then waits for its order on stdin.
WAITING_DRIVER = "sdk_python.py"


@value
class Argument:
    """One argv element and where it came from; the checks differ by origin."""

    value: str
    field: str  #: e.g. ``inputs.arguments[0]`` or ``inputs.parameters.pattern``
    literal: bool = False  #: declared verbatim (a regex): shell characters are escaped, not refused
    path: bool = False  #: declared a path: IV-03 applies
    fixed: bool = False  #: written by the adapter itself, reviewed with the pin
    prefix: str = ""  #: the adapter's own text before the caller's, as in ``--glob={value}``
    suffix: str = ""  #: and after it

    @property
    def given(self) -> str:
        """The caller's part of the element: what the input checks judge."""
        return self.value[len(self.prefix) : len(self.value) - len(self.suffix)]


@value
class Executable:
    """The file that was checked, so that the file that runs can be compared with it."""

    path: str  #: absolute, symlinks resolved
    sha256: str
    device: int
    inode: int


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
    """One secret that a call asks for. Its value is in no contract, call, plan or digest."""

    name: str  #: as `[secrets]` of actum.toml and `permissions.secrets.allowed` write it
    variable: str  #: holds the value, or the number of the descriptor to read it from
    by_descriptor: bool = False
    #: Not the secret itself but the access token that it last got, if one is kept
    token: bool = False


def secrets_asked(inputs: Inputs) -> tuple[SecretUse, ...]:
    """What `inputs.secrets` means, in the order of the names; descriptors count from 3."""
    return tuple(
        SecretUse(name=name, variable=f"ACTUM_FD_{name}", by_descriptor=True)
        if how == "fd"
        else SecretUse(name=name, variable=how.partition(":")[2] or name)
        for name, how in sorted(inputs.secrets.items())
    )


@value
class Call:
    """What would be executed, before anyone has said that it may be."""

    tool: ToolRef
    adapter: AdapterRef
    operation: str  #: the allowlisted command or operation
    program: str  #: as the adapter names it, resolved on the scoped PATH by the registry stage
    arguments: tuple[Argument, ...]
    environment: Mapping[str, str]
    stdin: bytes
    working_directory: str
    input_files: tuple[str, ...]
    #: name -> content of files that the adapter brings along, found inside below `PROVIDED`
    provided: Mapping[str, bytes] = field(default_factory=dict)
    secrets: tuple[SecretUse, ...] = ()

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
    """Verdict of one input check; `names` lists what was escaped or stripped, never its value."""

    code: str  #: ``IV-01`` … ``IV-05``
    result: CheckResult
    names: tuple[str, ...] = ()


@value
class ValidationProof:
    """That IV-01..05 held for exactly this call. A runner refuses a plan without it."""

    call_sha256: str
    policy_sha256: str
    checks: tuple[Check, ...]
    executable: Executable

    @property
    def sha256(self) -> str:
        return sha256_json(
            {
                "call": self.call_sha256,
                "policy": self.policy_sha256,
                "checks": [[c.code, c.result.value, list(c.names)] for c in self.checks],
                "executable": [self.executable.path, self.executable.sha256],
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
class EffectivePolicy:
    """The intersection of everything that has a say. Frozen, hashed, never wider than an input."""

    runner: RunnerKind
    limits: Limits
    read: tuple[str, ...]  #: absolute, resolved; the only host paths visible inside
    write: tuple[str, ...]  #: each also readable
    deny: tuple[str, ...]  #: hidden, wins over both
    #: Inside a writable path, yet not the tool's to change: covered where it writes directly, held
    #: back at the commit of a transaction.
    protect: tuple[str, ...]
    network: NetworkPolicy
    environment: tuple[str, ...]  #: names that may reach the tool
    approvals: tuple[str, ...] = ()  #: what this rests on: ``gate:pin``, ``gate:who:request_id``
    #: Whether changes are a transaction, which the host decides about afterwards, or direct.
    transaction: bool = False

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
        }

    @property
    def sha256(self) -> str:
        return _policy_sha256(self)


@lru_cache(maxsize=64)  # one execution asks four times, and most have the policy of another one
def _policy_sha256(policy: EffectivePolicy) -> str:
    return sha256_json(policy.document())


@value
class TraceContext:
    """Who this attempt belongs to (seed 004)."""

    trace_id: str
    execution_id: str
    attempt: int = 1
    parent: str | None = None


@value
class SealedInput:
    """An input file as it was read once. Its copy is what the tool reads at `path`."""

    path: str  #: absolute, resolved
    sha256: str
    copy: str = field(compare=False)  #: a private file with exactly these bytes


@value
class Plan:
    """All a runner may know about one attempt."""

    tool: ToolRef
    adapter: AdapterRef
    argv: tuple[str, ...]  #: argv[0] is the name the tool sees; `proof.executable` is what runs
    environment: Mapping[str, str]
    working_directory: str
    stdin: bytes
    policy: EffectivePolicy
    proof: ValidationProof
    output_files: tuple[str, ...]  #: absolute paths to collect
    artifacts: tuple[str, ...]  #: declared names; others in the directory are collected as well
    trace: TraceContext
    provided: Mapping[str, bytes] = field(default_factory=dict)  #: read-only, below `PROVIDED`
    secrets: tuple[SecretUse, ...] = ()  #: names; the runner asks for the values at the start
    steady: bool = False  #: addresses are not randomised
    #: writable folder -> folder of the layers that take its changes, where they are a transaction
    layers: Mapping[str, str] = field(default_factory=dict)
    sealed: tuple[SealedInput, ...] = ()  #: the input files
    #: read-only folder with sealed inputs -> folder of the layers that keep them from being lost
    views: Mapping[str, str] = field(default_factory=dict, compare=False)
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
        )


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
        }
    )
