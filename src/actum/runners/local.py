"""The local runner: one plan, one sandbox on this host, one capture.

Lifecycle, each step always reached or explicitly aborted: receive the validated plan, prepare an
isolated workspace, apply limits, execute, capture, emit the last event, return. No retry, no
choice, no change of permissions, no memory of earlier plans.
"""

from __future__ import annotations

import os
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from actum.capture import collect
from actum.capture.model import (
    Cancelled,
    Capture,
    Closed,
    Collected,
    Connection,
    DeadlinePassed,
    Denial,
    Ending,
    Enforced,
    Exited,
    LimitKilled,
    NotCollected,
    PolicyBroken,
    Signalled,
)
from actum.capture.suspicions import suspicions
from actum.contract.call import PROVIDED, TOKEN_FILE, EffectivePolicy, Plan
from actum.contract.levels import is_within
from actum.contract.limits import (
    ARTIFACTS_BYTES,
    IDLE_S,
    MESSAGE_BYTES,
    OUTPUT_FILES_BYTES,
)
from actum.contract.model import RunnerKind
from actum.errors import Refused
from actum.evidence.trace import Emit, EventType
from actum.kernel import open_exact
from actum.runners import manifest, passable
from actum.runners.attend import SO_FAR, Attended, Stop, attend
from actum.runners.base import Cancel, Capability, Channel, OnOutput, Permit, require_proof
from actum.runners.lifecycle import Lifecycle, never_started, trace_outcome
from actum.runners.outside import Outside
from actum.runners.places import Places
from actum.runners.warm import WarmInterpreters, shape_of
from actum.sandbox import probe
from actum.sandbox.cgroup import Cgroup, Usage
from actum.sandbox.host import Sandbox, Spawner
from actum.secrets.given import Given, Secrets
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction
    from actum.runners.channel import Duplex
    from actum.sandbox.egress.relay import Relay
    from actum.sandbox.wire import Grant, Request

#: Room for folders beside the files themselves; over the limit is refused on collection.
_ARTIFACTS_TMPFS_BYTES = 2 * ARTIFACTS_BYTES
#: Prepared sandboxes a long-lived runner keeps at most.
_POOL_SIZE = 8
#: Tools kept running at once. They wait most of the time, so they take no place of those who run.
_MAX_KEPT = 32
_NEVER_GRANTED = ("/proc", "/sys", "/dev")
_CONTROL_FILES = frozenset({"actum.toml", "tools", "tools.lock", "rules"})


class LocalRunner:
    """Namespaces, cgroups, Landlock and seccomp on this host."""

    kind = RunnerKind.LOCAL

    def __init__(
        self,
        *,
        resolve: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        max_kept: int = _MAX_KEPT,
        egress: Mapping[str, int] | None = None,
        secrets: Secrets | None = None,
        relay: Relay | None = None,
        pool: bool = False,
        spawner: Spawner | None = None,
    ) -> None:
        self._secrets = secrets or Secrets({})
        self._kept = Places(max_kept, queued=0)
        self._resolve = resolve or {}
        self._egress = egress or {}  #: of `egress.bounds.Bounds`, those that are set
        self._relay = relay  #: ``None``: one is made when the first execution needs it
        self._ca_file = ca_file
        self._spawner = spawner or Spawner(pool_size=_POOL_SIZE if pool else 0)
        self._warm = WarmInterpreters() if pool else None
        self._host: probe.Host | None = None
        self._equipped = False
        self._guard = threading.Lock()

    @property
    def host(self) -> probe.Host:
        if self._host is None:
            self._host = probe.examine()
        return self._host

    def warm_up(self) -> None:
        """Start the spawner while the caller still validates."""
        self._spawner.start()
        if not self._equipped:
            self._equip()

    def _equip(self) -> None:
        """Once this host is known, tell the spawner where its control groups are made."""
        if self.host.cgroups is not None:
            self._spawner.equip(self.host.cgroups)
            self._equipped = True

    def capabilities(self) -> tuple[Capability, ...]:
        return manifest.capabilities(self.host)

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        for what, (problem, remedy) in self.host.problems.items():
            raise Refused(
                "LIMIT_NOT_ENFORCEABLE",
                f"The local runner cannot enforce its promises here ({what}): {problem}.",
                remedy=f"Remedy: {remedy}. `actum doctor` lists everything.",
            )
        return manifest.foresee(policy, self.host)

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        require_proof(plan)
        # Refusals come before the first event: an invocation that cannot be held is not received.
        foreseen = self.foresee(plan.policy)
        request, owner = _request(plan)
        outside = Outside.of(plan.policy, self._ca_file)
        outside.describe(request)
        secrets = self._secrets.give(plan.secrets, _holder(plan))
        order = _with_secrets(request, secrets)
        redaction = _redaction(secrets)
        if cancel is not None and cancel.requested:
            if permit is not None:
                permit()  # an invocation that was received and cancelled is on record too
            return never_started(plan, self.kind, emit, foreseen)
        try:
            return self._carry_out(
                plan,
                emit,
                on_output,
                cancel,
                permit,
                foreseen,
                order,
                owner,
                outside,
                redaction,
                keep_token=secrets.keep_token,
            )
        finally:
            self._refill(plan, request, owner)

    def open(
        self,
        plan: Plan,
        emit: Emit,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
        *,
        idle_s: float = IDLE_S,
        message_bytes: int = MESSAGE_BYTES,
    ) -> Channel:
        from actum.runners.channel import Duplex, LocalChannel

        require_proof(plan)
        if plan.stdin:
            raise Refused(
                "CHANNEL_STDIN",
                "inputs.stdin: a tool that is spoken with gets its input line by line.",
                remedy="Leave stdin out, and send what it holds.",
            )
        foreseen = self.foresee(plan.policy)
        request, owner = _request(plan)
        outside = Outside.of(plan.policy, self._ca_file)
        outside.describe(request)
        secrets = self._secrets.give(plan.secrets)
        order = _with_secrets(request, secrets)
        redaction = _redaction(secrets)
        if not self._kept.try_take():
            raise Refused(
                "SESSIONS_FULL",
                f"{self._kept.count} tools are kept running already; nothing ran.",
                remedy="Close one of them, or raise limits.max_sessions in actum.toml.",
            )
        duplex = Duplex(idle_s=idle_s, message_bytes=message_bytes, redaction=redaction)

        def carry_out() -> Capture:
            try:
                return self._carry_out(
                    plan,
                    emit,
                    None,
                    cancel,
                    permit,
                    foreseen,
                    order,
                    owner,
                    outside,
                    redaction,
                    duplex,
                )
            finally:
                self._kept.give_back()

        return LocalChannel(duplex, plan.policy.limits.timeout_ms / 1000, carry_out)

    def _carry_out(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None,
        cancel: Cancel | None,
        permit: Permit | None,
        foreseen: tuple[Enforced, ...],
        request: Request,
        owner: tuple[int, int],
        outside: Outside,
        redaction: Redaction | None,
        duplex: Duplex | None = None,
        keep_token: Callable[[bytes], None] | None = None,
    ) -> Capture:
        limits = plan.policy.limits
        modes = passable.remember(plan.policy)
        if duplex is None:
            sandbox, cgroup, release = self._sandbox(plan, request, owner)
        else:
            sandbox, cgroup = self._launch(request, owner, duplex.stdin)
            release = sandbox.go
        # The sandbox is being built while the start is put on record; it waits for our word.
        if permit is not None:
            try:
                permit()
            except BaseException:
                sandbox.discard()
                cgroup.remove()
                raise
        lifecycle = Lifecycle(plan, self.kind, emit)
        lifecycle.reached(EventType.TOOL_RUN_START, {"attempt": plan.trace.attempt})

        def ready() -> None:
            lifecycle.reached(
                EventType.TOOL_RUN_RESOURCE_APPLIED,
                {"limits": [row.limit for row in foreseen if row.enforced]},
            )
            if duplex is not None:
                duplex.measure_by(
                    lambda note: manifest.measured(
                        foreseen,
                        plan.policy,
                        SO_FAR,
                        cgroup.usage(),
                        lifecycle.elapsed_ms(),
                        outside,
                        note,
                    )
                )
                duplex.started.set()

        try:
            try:
                if outside.doors is not None:
                    outside.begin(self._open_relay(), sandbox)
                try:
                    release()
                    try:
                        attended = attend(
                            sandbox,
                            cgroup,
                            deadline=lifecycle.began + limits.timeout_ms / 1000,
                            on_output=on_output,
                            cancel=cancel,
                            on_ready=ready,
                            on_doors=outside.on_doors,
                            duplex=duplex,
                            redaction=redaction,
                        )
                    finally:
                        passable.reopen(modes)
                        if duplex is not None:
                            duplex.measure_by(None)
                    usage = cgroup.usage(attended.usage)
                    duration_ms = lifecycle.elapsed_ms()
                    collected, not_collected = _collect(plan, sandbox)
                    if keep_token is not None and any(use.token for use in plan.secrets):
                        collected, not_collected = _without_token(
                            collected, not_collected, keep_token
                        )
                finally:
                    connections = outside.end()
                    sandbox.close()
            finally:
                leftovers = _remove(cgroup)
        except BaseException:
            lifecycle.abort()
            raise
        enforcement = manifest.measured(
            foreseen, plan.policy, attended, usage, duration_ms, outside
        )
        if duplex is not None:
            enforcement += duplex.rows(attended.stop)
        capture = Capture(
            ending=_ending(attended, usage),
            stdout=attended.stdout,
            stderr=attended.stderr,
            collected=collected,
            not_collected=not_collected,
            enforcement=enforcement,
            denials=_denials(attended, connections),
            connections=connections,
            duration_ms=duration_ms,
            leftovers=leftovers,
        )
        if redaction is not None:
            capture = redaction.capture(capture)
            lifecycle.note(EventType.REDACTION, {"secrets": dict(redaction.found)})
        if suspected := suspicions(capture):
            lifecycle.note(EventType.SECRET_SUSPECTED, suspected)
        for connection in capture.connections:
            lifecycle.note(EventType.EGRESS, as_dict(connection))
        lifecycle.reached(
            EventType.TOOL_RUN_OUTPUT_CAPTURED,
            {
                "stdout_bytes": capture.stdout.total_bytes,
                "stderr_bytes": capture.stderr.total_bytes,
                "files": len(collected),
                "not_collected": len(not_collected),
            },
        )
        lifecycle.reached(
            EventType.TOOL_RUN_END,
            {"ending": type(capture.ending).__name__, "denials": attended.denials_total},
            trace_outcome(capture.ending),
        )
        return capture

    def _sandbox(
        self, plan: Plan, request: Request, owner: tuple[int, int]
    ) -> tuple[Sandbox, Cgroup, Callable[[], None]]:
        """A sandbox in its group, one that waits for just this or a new one; and what starts it."""
        shape = shape_of(plan, request) if self._warm is not None else None
        warm = self._warm.take(shape) if self._warm is not None and shape is not None else None
        if warm is not None:
            return warm.sandbox, warm.cgroup, lambda: warm.give(plan.stdin)
        sandbox, cgroup = self._launch(request, owner, plan.stdin)
        return sandbox, cgroup, sandbox.go

    def _refill(self, plan: Plan, request: Request, owner: tuple[int, int]) -> None:
        self._spawner.refill()
        shape = shape_of(plan, request) if self._warm is not None else None
        if self._warm is not None and shape is not None:
            self._spawner.teach()
            self._warm.refill(shape, lambda stdin: self._launch_ahead(request, owner, stdin))

    def _launch_ahead(
        self, request: Request, owner: tuple[int, int], stdin: int
    ) -> tuple[Sandbox, Cgroup]:
        found = self._launch(request, owner, stdin)
        self._spawner.refill()  # the member it took, while there is time
        return found

    def _launch(
        self, request: Request, owner: tuple[int, int], stdin: bytes | int
    ) -> tuple[Sandbox, Cgroup]:
        if not self._equipped:
            self._equip()
        return self._spawner.launch(request, owner, stdin)

    def close(self) -> None:
        if self._warm is not None:
            self._warm.close()
        self._spawner.close()
        if self._relay is not None:
            self._relay.close()

    def _open_relay(self) -> Relay:
        with self._guard:
            if self._relay is None:
                from actum.sandbox.egress.bounds import Bounds
                from actum.sandbox.egress.relay import Relay  # an event loop, for few executions

                self._relay = Relay(self._resolve, Bounds(**self._egress))
            return self._relay


def _redaction(secrets: Given) -> Redaction | None:
    if not secrets:
        return None
    from actum.capture.redaction import Redaction  # the automaton, for few executions

    return Redaction(secrets.values)


def _with_secrets(request: Request, secrets: Given) -> Request:
    """In this copy alone, which becomes a sealed memory file and is forgotten: what others keep of
    a request (the shape of warm interpreters) never holds a value."""
    return {
        **request,
        "environment": {**request["environment"], **secrets.environment},
        "secrets": [os.fsdecode(value) for value in secrets.descriptors],
    }


def _holder(plan: Plan) -> str:
    """For whom a token is kept: one approval of a tool, and one adapter of it, as it stands."""
    return f"{plan.tool.tool_id} {plan.tool.pin} {plan.adapter.sha256}"


def _without_token(
    collected: tuple[Collected, ...],
    not_collected: tuple[NotCollected, ...],
    keep: Callable[[bytes], None],
) -> tuple[tuple[Collected, ...], tuple[NotCollected, ...]]:
    """What the tool has left behind but for its token, which nobody else is shown."""
    for item in collected:
        if _is_token(item):
            keep(item.content)
    return (
        tuple(item for item in collected if not _is_token(item)),
        tuple(item for item in not_collected if not _is_token(item)),
    )


def _is_token(item: Collected | NotCollected) -> bool:
    return item.kind == "artifact" and item.path == TOKEN_FILE


def _remove(cgroup: Cgroup) -> tuple[str, ...]:
    """What cannot be removed. That it goes is the proof: the kernel keeps a group that holds a
    process."""
    try:
        cgroup.remove()
    except OSError as error:
        return (f"cgroup {error.filename}: {error.strerror}",)
    return ()


def _request(plan: Plan) -> tuple[Request, tuple[int, int]]:
    """The plan in the words of the init, and whose files the tool works on."""
    policy = plan.policy
    writable = [path for path in policy.write if not _covered(path, policy.write)]
    readable = [
        path
        for path in policy.read
        if not _covered(path, policy.read) and not any(is_within(path, w) for w in writable)
    ]
    grants = [
        *(_grant(path, write=True) for path in writable),
        *(_grant(path, write=False) for path in readable),
    ]
    executable = plan.proof.executable
    request: Request = {
        "argv": list(plan.argv),
        "environment": dict(plan.environment),
        "executable": executable.path,
        "executable_device": executable.device,
        "executable_inode": executable.inode,
        "working_directory": plan.working_directory,
        # Parents before children, for whoever mounts them.
        "grants": sorted(grants, key=lambda grant: grant["path"].count("/")),
        "protect": _protected(policy),
        "deny": [path for path in policy.deny if os.path.lexists(path)],
        "memory_bytes": policy.limits.memory_bytes,
        "cpu_cores": policy.limits.cpu_cores,
        "scratch_bytes": manifest.scratch_bytes(policy.limits),
        "artifacts_bytes": _ARTIFACTS_TMPFS_BYTES,
        "max_children": policy.limits.children,
        "etc": {},
        "addresses": [],
        "listen": [],
        "resolver": "",
        "provided": _provided(plan, grants),
        "steady": plan.steady,
        "secrets": [],
    }
    return request, _owner(grants)


def _provided(plan: Plan, grants: list[Grant]) -> dict[str, str]:
    """What the adapter brings along, where no granted path can cover it."""
    if not plan.provided:
        return {}
    for grant in grants:
        if is_within(PROVIDED, grant["path"]) or is_within(grant["path"], PROVIDED):
            raise Refused(
                "PATH_NOT_GRANTABLE",
                f"{grant['path']} would cover {PROVIDED}, where this adapter's driver lies.",
                remedy="Grant a directory beside it.",
            )
    return {name: b64encode(content).decode() for name, content in plan.provided.items()}


def _owner(grants: list[Grant]) -> tuple[int, int]:
    """The caller; or, when root works in someone's directory, that someone."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0 and grants:
        found = os.stat(grants[0]["path"])
        return found.st_uid, found.st_gid
    return uid, gid


def _covered(path: str, paths: tuple[str, ...]) -> bool:
    return any(other != path and is_within(path, other) for other in paths)


def _grant(path: str, *, write: bool) -> Grant:
    if path == "/" or any(is_within(path, system) for system in _NEVER_GRANTED):
        raise Refused(
            "PATH_NOT_GRANTABLE",
            f"{path} is never given to a tool.",
            remedy="Put the project below a directory of its own.",
        )
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError as error:
        field = "write" if write else "read"
        raise Refused(
            "PATH_MISSING",
            f"sandbox.filesystem.{field}: {path}: {error.strerror}.",
            remedy="Create it, or leave it out of the list.",
        ) from error
    return {"path": path, "write": write, "device": found.st_dev, "inode": found.st_ino}


def _protected(policy: EffectivePolicy) -> list[str]:
    """What stays read-only inside writable paths. A name that does not exist cannot be covered."""
    result: list[str] = []
    for path in dict.fromkeys(_whole_git(path) for path in policy.protect):
        if os.path.realpath(path) != path:
            raise Refused(
                "CONTROL_FILE_LINKED",
                f"{path} is reached through a symbolic link, which the tool could lead elsewhere.",
                remedy="Put the file itself there, or work in a subdirectory.",
            )
        if os.path.lexists(path):
            result.append(path)
        elif os.path.basename(path) in _CONTROL_FILES:
            raise Refused(
                "CONTROL_FILE_MISSING",
                f"{path} does not exist, so the tool could create it and govern itself.",
                remedy="Run `actum init` again (it only adds what is missing), or work in a"
                " subdirectory.",
            )
    return result


def _whole_git(path: str) -> str:
    """A .git is closed as a whole, and as a file too: a renamed .git, a `commondir` beside the
    configuration, or another gitdir would each make git on the host obey the tool."""
    holder = os.path.dirname(path)
    return holder if os.path.basename(holder) == ".git" else path


def _ending(attended: Attended, usage: Usage) -> Ending:
    exited = os.WIFEXITED(attended.wait_status)
    signal = 0 if exited else os.WTERMSIG(attended.wait_status)
    if attended.violation:
        return PolicyBroken(attended.violation)
    if usage.oom_kills:
        return LimitKilled("memory_mb", usage.oom_proof)
    if attended.stop is Stop.DEADLINE:
        return DeadlinePassed(signal)
    if attended.stop is Stop.CANCEL:
        return Cancelled(signal)
    if attended.stop is Stop.MESSAGE:
        return LimitKilled("message_bytes", "one message was longer")
    if attended.stop in (Stop.CLOSED, Stop.IDLE):
        return Closed(signal)
    return Exited(os.WEXITSTATUS(attended.wait_status)) if exited else Signalled(signal)


def _denials(attended: Attended, connections: tuple[Connection, ...]) -> tuple[Denial, ...]:
    found = [
        Denial(kind=kind, target=target, time_ms=time_ms)
        for kind, target, time_ms in attended.denials
    ]
    found += [
        Denial(
            kind="network",
            target=f"{item.host}:{item.port} ({item.refused})",
            time_ms=item.time_ms,
        )
        for item in connections
        if item.refused
    ]
    return tuple(found)


def _collect(
    plan: Plan, sandbox: Sandbox
) -> tuple[tuple[Collected, ...], tuple[NotCollected, ...]]:
    """After the last process is gone, so that nothing can be swapped under our hands."""
    collected: tuple[Collected, ...] = ()
    missed: tuple[NotCollected, ...] = ()
    grants = sorted({*plan.policy.write, *plan.policy.read}, key=len, reverse=True)
    left = OUTPUT_FILES_BYTES
    for path in plan.output_files:
        anchor = next((grant for grant in grants if is_within(path, grant)), None)
        if anchor is None:
            missed += (NotCollected(path=path, kind="output_file", reason="outside every grant"),)
            continue
        try:
            root = open_exact(anchor, os.O_PATH)
        except OSError as error:  # moved away meanwhile, by another tool or the caller
            reason = f"its directory: {error.strerror}"
            missed += (NotCollected(path=path, kind="output_file", reason=reason),)
            continue
        relative = os.path.relpath(path, anchor)
        taken, lost = collect.collect_files(root, (relative,), "output_file", left)
        os.close(root)
        left -= sum(item.size for item in taken)
        collected += taken
        missed += lost
    if sandbox.artifacts >= 0:
        taken, lost = collect.collect_tree(
            sandbox.artifacts,
            "artifact",
            limit_bytes=ARTIFACTS_BYTES,
            deadline=time.monotonic() + 5,
        )
        collected += taken
        missed += lost
    return collected, missed
