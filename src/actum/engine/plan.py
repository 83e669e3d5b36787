"""From a contract and its registry entry to a plan: decide, validate, prove."""

from __future__ import annotations

from actum.contract.call import (
    Call,
    Check,
    EffectivePolicy,
    Plan,
    SealedInput,
    TraceContext,
    ValidationProof,
    call_sha256,
)
from actum.contract.canonical import sha256_json
from actum.contract.model import Contract, Determinism
from actum.contract.wire import asked_document
from actum.engine.approval_call import BoundCall, FileDigests, bind
from actum.engine.determinism import objections as objections_to_level
from actum.engine.determinism import steady
from actum.errors import Refused, Violation
from actum.policy.effective import PolicySettings, effective_policy
from actum.policy.environment import approved_names, tool_environment
from actum.policy.gates import ApprovalNeeded, Granted, imagined
from actum.policy.inputs import Checked, check_inputs
from actum.policy.secrets import check_secrets, descriptor_numbers
from actum.registry.looks import Looks
from actum.registry.model import Entry
from actum.registry.registry import Registry
from actum.value import replace, value

#: How OpenSSL, curl, requests, Node and git are told whom to trust.
_AUTHORITY_VARIABLES = (
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
)


@value
class Judged:
    """Policy and input checks, evaluated together so that every objection is in one answer."""

    policy: EffectivePolicy
    checked: Checked
    violations: tuple[Violation, ...]
    needed: tuple[ApprovalNeeded, ...]  #: approvals that are missing
    wished: EffectivePolicy  #: what the policy would be with all of them

    @property
    def checks(self) -> tuple[Check, ...]:
        return self.checked.checks

    def require_permissible(self) -> None:
        """Nothing stands in the way that no approval could remove."""
        if self.violations:
            raise refused(self.violations)


def refused(violations: tuple[Violation, ...]) -> Refused:
    codes = tuple(dict.fromkeys(violation.code for violation in violations))
    code = codes[0].replace("-", "_") if len(codes) == 1 else "INPUT_REFUSED"
    return Refused(code, "; ".join(v.message for v in violations), violations=violations)


def output_problem(text: str) -> Violation:
    """A broken expectation about outputs, in the same form as any other objection."""
    field, _, message = text.partition(": ")
    return Violation(code="OUTPUT_INVALID", field=field, value="", message=message)


def judge(
    contract: Contract,
    entry: Entry,
    call: Call,
    settings: PolicySettings,
    granted: tuple[Granted, ...],
    looks: Looks,
) -> Judged:
    policy, objections, needed = effective_policy(contract, entry, settings, granted, looks)
    wished = policy
    if needed:
        everything = (*granted, *imagined(needed))
        wished, _, _ = effective_policy(contract, entry, settings, everything, looks)
    # While something is missing nothing runs; the objections are those that would remain.
    checked = check_inputs(contract, call, entry, wished, looks, root=settings.repo_root)
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
    looks: Looks,
    sealed: tuple[SealedInput, ...],
) -> Plan:
    """Bind what was judged to what will run; the runner compares the two."""
    call = judged.checked.call
    environment = tool_environment(
        call,
        approved_names(entry),
        determinism=contract.determinism,
        path=entry.tool.path,
    )
    if settings.own_authorities and judged.policy.network.enabled:
        environment |= dict.fromkeys(_AUTHORITY_VARIABLES, "/run/ca.pem")
    environment |= descriptor_numbers(call.secrets)
    executable = registry.executable(entry, program=call.program, looks=looks)
    provided = call.provided
    is_steady = contract.determinism is Determinism.D2
    if is_steady:
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
        ),
        policy_sha256=judged.policy.sha256,
        checks=judged.checks,
        executable=executable,
    )
    return Plan(
        tool=call.tool,
        adapter=call.adapter,
        argv=call.argv,
        environment=environment,
        working_directory=call.working_directory,
        stdin=call.stdin,
        policy=judged.policy,
        proof=proof,
        output_files=judged.checked.output_files,
        artifacts=tuple(spec.path for spec in contract.outputs.artifacts),
        trace=trace,
        provided=provided,
        secrets=call.secrets,
        steady=is_steady,
        sealed=sealed,
        label=contract.metadata.purpose,
    )


def as_asked_by(
    contract: Contract, entry: Entry, plan: Plan, input_digest: str, trace: TraceContext
) -> tuple[Plan, str]:
    """`plan` and the digest of its inputs, made for an equal request, for this one."""
    plan = replace(
        plan, trace=trace, label=contract.metadata.purpose, environment=dict(plan.environment)
    )
    stdin = contract.inputs.stdin or b""
    if entry.adapter.cli is None or stdin == plan.stdin:
        return plan, input_digest
    plan = replace(plan, stdin=stdin)
    proof = replace(plan.proof, call_sha256=plan.call_sha256)
    return replace(plan, proof=proof), _digest(contract, [])


def again(plan: Plan, attempt: int, timeout_ms: int) -> Plan:
    """The same plan for another attempt: never wider, and with no more time than is left."""
    limits = plan.policy.limits
    policy = replace(
        plan.policy, limits=replace(limits, timeout_ms=min(limits.timeout_ms, timeout_ms))
    )
    return replace(
        plan,
        policy=policy,
        proof=replace(plan.proof, policy_sha256=policy.sha256),
        trace=replace(plan.trace, attempt=attempt),
    )


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


def input_digest(contract: Contract, files: FileDigests) -> str:
    """Digest of the inputs as asked for, with the digests of the input files; equal inputs give
    equal digests on every machine."""
    return _digest(contract, [digest for _, digest in files])


def _digest(contract: Contract, files: list[str]) -> str:
    return sha256_json({**asked_document(contract), "files": files})
