"""From a contract and its registry entry to a plan: decide, validate, prove."""

from __future__ import annotations

from actum.adapters.given_program import is_blank
from actum.adapters.url_hosts import with_url_hosts
from actum.approvals.approval_call import BoundCall, FileDigests, bind
from actum.contract.call import (
    Call,
    Check,
    EffectivePolicy,
    Executable,
    Plan,
    ProgramFile,
    SealedInput,
    TraceContext,
    ValidationProof,
    bound,
    call_sha256,
)
from actum.contract.canonical import sha256_json
from actum.contract.contract_json import asked_document
from actum.contract.model import Contract, Determinism, NetworkLevel
from actum.determinism.claims import objections as objections_to_level
from actum.determinism.claims import steady
from actum.errors import Refused, Violation
from actum.policy.effective import PolicySettings, effective_policy
from actum.policy.environment import tool_environment
from actum.policy.gates import ApprovalNeeded, Granted, imagined
from actum.policy.inputs import Checked, check_inputs
from actum.policy.network import level_of
from actum.policy.secret_grants import check_secrets, descriptor_numbers
from actum.registry.executable import MINIMAL_PATH, in_system
from actum.registry.model import Entry
from actum.registry.path_snapshot import PathSnapshot
from actum.registry.registry import Registry
from actum.value import replace, value

#: The variables by which OpenSSL, curl, requests, Node, git, pip and npm find trusted authorities.
_AUTHORITY_VARIABLES = (
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "npm_config_cafile",
)


@value
class Judged:
    """Policy and input checks, evaluated together so that one answer has every objection."""

    policy: EffectivePolicy
    checked: Checked
    violations: tuple[Violation, ...]
    needed: tuple[ApprovalNeeded, ...]  #: approvals that are missing
    wished: EffectivePolicy  #: what the policy would be with all of them

    @property
    def checks(self) -> tuple[Check, ...]:
        return self.checked.checks

    def require_permissible(self) -> None:
        """Raise unless approvals alone are missing."""
        if self.violations:
            raise refused(self.violations)


def refused(violations: tuple[Violation, ...]) -> Refused:
    codes = tuple(dict.fromkeys(violation.code for violation in violations))
    code = codes[0].replace("-", "_") if len(codes) == 1 else "INPUT_REFUSED"
    return Refused(code, "; ".join(v.message for v in violations), violations=violations)


def output_problem(text: str) -> Violation:
    """A problem with the outputs, in the form of any other objection."""
    field, _, message = text.partition(": ")
    return Violation(code="OUTPUT_INVALID", field=field, value="", message=message)


def judge(
    contract: Contract,
    entry: Entry,
    call: Call,
    settings: PolicySettings,
    granted: tuple[Granted, ...],
    snapshot: PathSnapshot,
) -> Judged:
    contract = with_url_hosts(contract, entry)
    policy, objections, needed = effective_policy(contract, entry, settings, granted, snapshot)
    wished = policy
    if needed:
        everything = (*granted, *imagined(needed))
        wished, _, _ = effective_policy(contract, entry, settings, everything, snapshot)
    # While an approval is missing nothing runs; the objections are those that would remain.
    checked = check_inputs(contract, call, entry, wished, snapshot, root=settings.repo_root)
    return Judged(
        policy=policy,
        checked=checked,
        violations=(
            *objections,
            *objections_to_level(contract, policy),
            *check_secrets(call, entry),
            *checked.violations,
        ),
        needed=needed,
        wished=wished,
    )


def make_plan(
    contract: Contract,
    entry: Entry,
    judged: Judged,
    registry: Registry,
    settings: PolicySettings,
    trace: TraceContext,
    snapshot: PathSnapshot,
    sealed: tuple[SealedInput, ...],
) -> Plan:
    """Bind the checked call to the plan; the runner compares the two."""
    call = judged.checked.call
    environment = tool_environment(
        call,
        judged.policy.environment,
        determinism=contract.determinism,
        path=entry.tool.path,
    )
    if level_of(contract.sandbox.network, entry) is NetworkLevel.REGISTRY:
        set_up = settings.registries().environment
        # Beneath what the caller gives, and only what the tool's approval names.
        environment = {
            name: set_up[name] for name in set_up if name in judged.policy.environment
        } | environment
    if settings.own_authorities and judged.policy.network.enabled:
        environment |= dict.fromkeys(_AUTHORITY_VARIABLES, "/run/ca.pem")
    environment |= descriptor_numbers(call.secrets)
    image = registry.image(entry, snapshot)
    executable = registry.executable(entry, program=call.program, snapshot=snapshot)
    policy = judged.policy
    if image is None:
        policy = _with_interpreters(
            policy, entry, call.program, executable, registry, settings, snapshot
        )
    provided = call.provided
    is_steady = contract.determinism is Determinism.D2
    if is_steady:
        if image is not None:
            raise Refused(
                "DETERMINISM_UNSUPPORTED",
                "D2 loads a library of this host's C library, and the program is in the image"
                f" {image.reference}.",
                remedy="Ask for D1.",
            )
        files, preloaded = steady(executable)
        provided, environment = {**provided, **files}, environment | preloaded
    proof = ValidationProof(
        call_sha256=call_sha256(
            tool=call.tool,
            adapter=call.adapter,
            argv=call.argv,
            environment=environment,
            working_directory=call.working_directory,
            stdin=call.stdin,
            provided=provided,
            secrets=call.secrets,
            steady=is_steady,
            sealed=sealed,
            image=image,
        ),
        policy_sha256=policy.sha256,
        checks=judged.checks,
        executable=executable,
    )
    plan = Plan(
        tool=call.tool,
        adapter=call.adapter,
        argv=call.argv,
        environment=environment,
        working_directory=call.working_directory,
        stdin=call.stdin,
        policy=policy,
        proof=proof,
        output_files=judged.checked.output_files,
        artifacts=tuple(spec.path for spec in contract.outputs.artifacts),
        trace=trace,
        provided=provided,
        secrets=call.secrets,
        steady=is_steady,
        sealed=sealed,
        image=image,
        label=contract.metadata.purpose,
    )
    return bound(plan)


def _with_interpreters(
    policy: EffectivePolicy,
    entry: Entry,
    name: str,
    executable: Executable,
    registry: Registry,
    settings: PolicySettings,
    snapshot: PathSnapshot,
) -> EffectivePolicy:
    """`policy` with the approved prefixes that the program is in. Refuses a program that does not
    exist inside the sandbox."""
    found = registry.located(entry, program=name, snapshot=snapshot)
    if in_system(found) and in_system(executable.path):
        return policy
    from actum.policy.interpreters import Program, Setting, interpreters_of  # few calls need it

    program = Program(
        found=found,
        executable=executable,
        search_path=entry.tool.path or MINIMAL_PATH,
        manifest=f"{entry.tool.folder}/tool.yaml",
    )
    setting = Setting(
        prefixes=settings.interpreters,
        project=settings.repo_root,
        writable=registry.lock().writable(registry.root),
    )
    used = interpreters_of(program, policy, setting, registry.identified(snapshot), snapshot)
    return replace(policy, interpreters=used) if used else policy


def as_asked_by(
    contract: Contract, entry: Entry, plan: Plan, input_digest: str, trace: TraceContext
) -> tuple[Plan, str]:
    """`plan` and the digest of its inputs, adapted from an equal request to this one."""
    plan = replace(
        plan, trace=trace, label=contract.metadata.purpose, environment=dict(plan.environment)
    )
    stdin = contract.inputs.stdin or b""
    if entry.adapter.cli is None or stdin == plan.stdin:
        return bound(plan), input_digest
    plan = replace(plan, stdin=stdin)
    proof = replace(plan.proof, call_sha256=plan.call_sha256)
    return bound(replace(plan, proof=proof)), _digest(contract, [])


def again(plan: Plan, attempt: int, timeout_ms: int) -> Plan:
    """The same plan for another attempt: never wider, within the time that is left."""
    limits = plan.policy.limits
    policy = replace(
        plan.policy, limits=replace(limits, timeout_ms=min(limits.timeout_ms, timeout_ms))
    )
    plan = replace(
        plan,
        policy=policy,
        proof=replace(plan.proof, policy_sha256=policy.sha256),
        trace=replace(plan.trace, attempt=attempt),
    )
    return bound(plan)


def bound_call(contract: Contract, entry: Entry, judged: Judged, files: FileDigests) -> BoundCall:
    """What an approval of this call is bound to."""
    return bind(
        contract,
        judged.checked.call,
        entry.pin,
        files=files,
        policy=judged.policy,
        wished=judged.wished,
        needed=judged.needed,
    )


def file_digests(call: Call, sealed: tuple[SealedInput, ...]) -> FileDigests:
    """The input files in the order of the call, and the digests of their sealed copies."""
    digests = {each.path: each.sha256 for each in sealed}
    return tuple((path, digests[path]) for path in call.input_files)


def require_program(call: Call, sealed: tuple[SealedInput, ...]) -> None:
    """Refuse a program file without a program: its interpreter would exit with 0."""
    if call.program_file is None:
        return
    path = call.input_files[-1]
    copy = next(each.copy for each in sealed if each.path == path)
    with open(copy, "rb") as file:
        if not all(is_blank(chunk) for chunk in iter(lambda: file.read(65_536), b"")):
            return
    field = call.program_file.field
    message = f"{field}: the program file {path} is empty."
    remedy = "Write a program to it, or name another file."
    violation = Violation(
        code="PROGRAM_EMPTY", field=field, value="", message=f"{message} {remedy}"
    )
    raise Refused("PROGRAM_EMPTY", message, remedy=remedy, violations=(violation,))


def input_digest(contract: Contract, files: FileDigests, program: ProgramFile | None = None) -> str:
    """Digest of the request's inputs, with the names and digests of the input files. The names are
    those of the request and are sorted: equal inputs give equal digests on every machine."""
    names = (*contract.inputs.input_files, *(() if program is None else (program.path,)))
    return _digest(
        contract, sorted([name, sha256] for name, (_, sha256) in zip(names, files, strict=True))
    )


def _digest(contract: Contract, files: list[list[str]]) -> str:
    return sha256_json({**asked_document(contract), "files": files})
