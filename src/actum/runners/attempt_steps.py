"""One attempt on a sandbox that was launched and waits: record the start, supervise, collect, end.

The same for every runner whose sandboxes have our init. A runner launches; this module starts the
tool, and decides nothing about where it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from actum.capture.model import Capture, Enforced
from actum.contract.call import Plan
from actum.contract.model import RunnerKind
from actum.evidence.records.trace import Emit, EventType
from actum.runners import manifest, path_modes
from actum.runners.attempt_outcome import (
    collect_outputs,
    denials_of,
    ending_of,
    judged,
    without_token,
)
from actum.runners.base import Cancel, OnOutput, Permit
from actum.runners.cleanup import Cleanup, remove
from actum.runners.egress_setup import Egress
from actum.runners.lifecycle import Lifecycle
from actum.runners.supervise import SO_FAR, Supervisor
from actum.sandbox.cgroup import Cgroup
from actum.sandbox.handle import Sandbox
from actum.secrets.given import Given
from actum.value import value

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction
    from actum.runners.channel import Duplex
    from actum.runners.comparison import Comparison
    from actum.sandbox.egress.relay import Relay
    from actum.sandbox.wire import Request


@value
class Order:
    """One plan with everything that is needed to carry it out."""

    plan: Plan
    foreseen: tuple[Enforced, ...]
    request: Request  #: without the values of secrets
    owner: tuple[int, int]
    modes: Mapping[str, int]  #: of folders, restored when the tool is gone
    egress: Egress
    secrets: Given
    redaction: Redaction | None


@value
class Launched:
    """A sandbox whose tool waits for `release`."""

    sandbox: Sandbox
    cgroup: Cgroup
    release: Callable[[], None]
    container_id: str | None = None


class Attempts:
    """What the attempts of one runner share: the relay, and the comparison of governing names."""

    def __init__(
        self,
        kind: RunnerKind,
        *,
        resolve: Mapping[str, str],
        egress: Mapping[str, int],
        relay: Relay | None,
        governed: tuple[str, tuple[str, ...]] | None,
    ) -> None:
        """`governed`: the project's root and its protected names, compared when a tool has written
        directly. ``None``: not compared, because a work item compares everything."""
        self._kind = kind
        self._resolve = resolve
        self._egress = egress  #: fields of `egress.bounds.Bounds` that are set
        self._relay = relay  #: ``None``: made for the first execution that needs it
        self._governed = governed
        self._comparison: Comparison | None = None
        self._guard = threading.Lock()

    def carry_out(
        self,
        order: Order,
        launched: Launched,
        emit: Emit,
        *,
        on_output: OnOutput | None,
        cancel: Cancel | None,
        permit: Permit | None,
        duplex: Duplex | None = None,
    ) -> tuple[Capture, Cleanup]:
        """Start the tool and stay until its end. The caller ends the returned cleanup."""
        plan, foreseen, egress = order.plan, order.foreseen, order.egress
        limits = plan.policy.limits
        sandbox, cgroup = launched.sandbox, launched.cgroup
        lifecycle = Lifecycle(plan, self._kind, emit)
        lifecycle.container_id = launched.container_id

        def ready() -> None:
            enforced = tuple(row.limit for row in foreseen if row.enforced)
            lifecycle.reached(EventType.TOOL_RUN_RESOURCE_APPLIED, {"limits": enforced})
            if duplex is not None:
                duplex.goes_outside(egress)
                duplex.measure_by(
                    lambda note: manifest.measured(
                        foreseen,
                        plan.policy,
                        SO_FAR,
                        cgroup.usage(),
                        lifecycle.elapsed_ms(),
                        egress,
                        note,
                    )
                )
                duplex.started.set()

        def start() -> float:
            launched.release()
            return lifecycle.begin() + limits.timeout_ms / 1000

        # Everything possible is prepared before the start. The start is recorded last, while the
        # sandbox is being built: it waits for `release`.
        supervisor = Supervisor(
            sandbox,
            cgroup,
            on_output=on_output,
            on_ready=ready,
            on_doors=egress.on_doors,
            cancel=cancel,
            duplex=duplex,
            redaction=order.redaction,
        )
        cleanup = Cleanup(sandbox, cgroup)
        compared = None
        try:
            if self._governed is not None and plan.policy.writes_directly:
                # While the sandbox is being built: nothing of the tool runs yet.
                compared = self._open_comparison(self._governed).begin(plan.policy)
            if permit is not None:
                permit()
        except BaseException:
            sandbox.discard()
            cgroup.remove()
            raise
        try:
            try:
                if egress.doors is not None:
                    egress.begin(self._open_relay(), sandbox)
                try:
                    supervised = supervisor.supervise(start, lifecycle.tell_beginning)
                finally:
                    path_modes.reopen(order.modes)
                    if duplex is not None:
                        duplex.measure_by(None)
                usage = cgroup.usage(supervised.usage)
                cleanup.by_init = supervised.usage is not None
                duration_ms = lifecycle.elapsed_ms()
                if plan.output_files or compared is not None:
                    # The kernel may still complete writes that the tool submitted and did not wait
                    # for (AIO): that ends when its memory is freed.
                    cleanup.found()
                collected, not_collected = collect_outputs(plan, sandbox)
                if plan.secrets and duplex is None:
                    collected, not_collected = without_token(
                        plan, collected, not_collected, order.secrets.keep_token
                    )
            finally:
                connections = egress.end()
            enforcement = manifest.measured(
                foreseen, plan.policy, supervised, usage, duration_ms, egress
            )
            if duplex is not None:
                enforcement += duplex.rows(supervised.stop)
            ending, workspace = ending_of(plan, supervised, usage), None
            if compared is not None:
                ending, workspace = judged(compared.end(), supervised, order.request, ending)
            capture = Capture(
                ending=ending,
                stdout=supervised.stdout,
                stderr=supervised.stderr,
                collected=collected,
                not_collected=not_collected,
                enforcement=enforcement,
                denials=denials_of(supervised, connections),
                connections=connections,
                duration_ms=duration_ms,
                workspace=workspace,
                cleanup=cleanup.found,
            )
            capture = lifecycle.conclude(capture, supervised.denials_total, order.redaction)
        except BaseException:
            sandbox.discard()
            remove(cgroup)
            lifecycle.abort()
            raise
        return capture, cleanup

    def close(self) -> None:
        if self._relay is not None:
            self._relay.close()

    def _open_comparison(self, governed: tuple[str, tuple[str, ...]]) -> Comparison:
        with self._guard:
            if self._comparison is None:
                from actum.runners.comparison import Comparison  # most tools do not write directly

                self._comparison = Comparison(*governed)
            return self._comparison

    def _open_relay(self) -> Relay:
        with self._guard:
            if self._relay is None:
                from actum.sandbox.egress.bounds import Bounds
                from actum.sandbox.egress.relay import Relay  # an event loop, for few executions

                self._relay = Relay(self._resolve, Bounds(**self._egress))
            return self._relay


def redaction_of(secrets: Given) -> Redaction | None:
    if not secrets:
        return None
    from actum.capture.redaction import Redaction  # the automaton, for few executions

    return Redaction(secrets.values)
